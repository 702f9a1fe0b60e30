"""The search for candidates: write, check and train them, and improve them from the results."""
