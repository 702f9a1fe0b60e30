"""Tables, curves, pictures and log files of a run."""
