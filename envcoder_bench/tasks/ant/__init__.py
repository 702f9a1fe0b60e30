"""The Ant runs towards a far target."""
