"""The commands of ``toolcast``, one file each."""
