"""The Humanoid runs towards a far target."""
