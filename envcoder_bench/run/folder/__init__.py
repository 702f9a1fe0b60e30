"""The folder of a run: config, state, logs, results and policies."""
