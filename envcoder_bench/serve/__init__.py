"""What programs and agents read: documents of ``--json``, and the server of ``envcoder-bench mcp``."""
