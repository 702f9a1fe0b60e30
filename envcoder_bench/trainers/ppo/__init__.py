"""Grouped PPO on rl_games: one policy per group, trained in one batch."""
