"""Preparation of a run: its candidates are loaded, checked and traced, its kernels compiled, its memory planned."""
