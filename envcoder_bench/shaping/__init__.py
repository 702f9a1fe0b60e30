"""Candidate files: the kinds of functions, loading and checking."""
