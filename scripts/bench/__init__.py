"""What scripts/benchmark.py measures, and how its results are kept and shown."""
