"""Final policies under what a robot meets: other friction, masses and motors, delay, pushes, noise and slopes."""
