"""Trainers, which learn one policy for each group of environments."""
