"""What a person reads afterwards: tables, curves and pictures."""
