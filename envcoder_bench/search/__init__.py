"""The outer loop: candidates are written, checked and trained, and what came of them goes into the next ones."""
