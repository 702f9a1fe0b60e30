"""One candidate's environments for other libraries: Gymnasium, ElegantRL, rl_games and rsl_rl."""
