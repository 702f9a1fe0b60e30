"""A run as a library: candidates in, ranked results out."""
