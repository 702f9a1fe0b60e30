"""Grouped PPO, equivalent to rl_games': one policy per group, trained in one batch."""
