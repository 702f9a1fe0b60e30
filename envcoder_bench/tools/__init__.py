"""Tools that read candidates, tasks and finished runs; they train nothing."""
