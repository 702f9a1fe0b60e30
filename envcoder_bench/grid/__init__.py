"""A grid of policies against arenas: all pairs and episodes in one simulation."""
