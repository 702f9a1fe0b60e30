"""One candidate's environments for other libraries: Gymnasium, rl_games and rsl_rl."""
