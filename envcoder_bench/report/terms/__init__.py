"""The effects of reward terms, functions and numbers of a candidate, from a run with variants of it."""
