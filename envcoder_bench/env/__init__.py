"""GroupedVecTask: the VecTask contract over groups of environments."""
