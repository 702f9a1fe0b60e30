"""The task registry; each task is one folder here and one YAML in cfg/task."""
