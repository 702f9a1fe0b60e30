"""Language models behind one contract; nothing outside this package imports an LLM's SDK."""
