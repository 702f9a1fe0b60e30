"""Where tasks come from: each source is a ``tasks.source.TaskSource``, and ``registry.py`` asks them."""
