"""One candidate's environment for other libraries: Gymnasium, ElegantRL, rsl_rl, and what wraps these."""
