"""Candidate files: the contract, loading, checking and running them on their slices."""
