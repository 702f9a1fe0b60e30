"""Language models behind one interface; nothing outside this package imports an LLM's SDK."""
