"""Faults made on purpose, on real servers under load, and a ledger that says what they cost."""
