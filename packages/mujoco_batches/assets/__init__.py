"""Assets: URDF and MJCF files, terrains, and which of their shapes may collide."""
