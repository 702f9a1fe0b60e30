"""A Franka Panda picks up one cube and stacks it on another."""
