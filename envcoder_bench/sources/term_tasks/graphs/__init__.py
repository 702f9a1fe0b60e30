"""CUDA graphs of a framework's step: fixed shapes in the place of indices, and what a graph cannot contain."""
