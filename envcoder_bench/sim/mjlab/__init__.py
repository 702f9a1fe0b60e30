"""Simulations with the interface of mjlab's."""
