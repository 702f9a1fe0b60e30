"""ElegantRL's PPO as a trainer: one learner for each group."""
