"""Terrain: generators of height fields, grids of them, and height scans; numpy and torch, without an engine."""
