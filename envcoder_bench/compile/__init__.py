"""Tracing of candidate functions as programs of scalar operations, and compilation of many programs to few kernels."""
