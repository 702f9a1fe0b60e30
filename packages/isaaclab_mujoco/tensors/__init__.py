"""``omni.physics.tensors``: views of the simulation as tensors."""
