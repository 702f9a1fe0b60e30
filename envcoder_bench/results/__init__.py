"""What is known of a run: rows, faults, logs, statistics and the ranking; nothing here prints or draws."""
