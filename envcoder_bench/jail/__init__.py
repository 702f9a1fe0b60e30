"""Run untrusted candidate code in a confined process, which returns plain data."""
