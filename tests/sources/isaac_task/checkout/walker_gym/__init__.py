"""A fork of legged_gym in miniature, under another name, for the tests."""
