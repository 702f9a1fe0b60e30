"""A cart swings up a pole and balances it."""
