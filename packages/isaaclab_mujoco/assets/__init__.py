"""Files of robots, and robots from files."""
