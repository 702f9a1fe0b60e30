"""Where code that nobody has read is parsed, run and traced: in a confined process, which gives plain data back."""
