"""Curricula that set numbers for single groups: when they are called, and code that runs with the numbers of each."""
