"""Simulators behind one contract; nothing outside this package imports a physics engine."""
