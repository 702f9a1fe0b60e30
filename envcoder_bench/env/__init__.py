"""The vectorized environment over groups, the dispatch of candidate functions, and evaluation."""
