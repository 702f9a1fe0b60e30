"""Grouped FlashSAC: an off-policy learner for each group."""
