"""Replay of a run's policies: recorded states, rendered frames, videos and the viewer."""
