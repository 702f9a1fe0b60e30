"""The measurements of scripts/benchmark.py, their records, tables and plots."""
