"""What tests of several kinds share: real servers, raw readers, bounded waits."""
