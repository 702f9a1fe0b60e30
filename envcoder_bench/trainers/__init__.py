"""What learns: one policy for each group of environments."""
