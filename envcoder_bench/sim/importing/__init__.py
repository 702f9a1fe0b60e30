"""Robots of other projects as models that this package's simulators run."""
