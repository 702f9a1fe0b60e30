"""Consecutive successes: goals that the object is turned to in an episode, before it falls; 0 and more

What the task counts in `successes`, and averages over all environments in `consecutive_successes`; Eureka (Ma et al.
2023, github.com/eureka-research/Eureka, tasks/allegro_hand.py) ranks by the latter.
"""

SUM = True


def compute_fitness(reset_goal_buf):
    """1 where a goal is reached in this step."""
    return reset_goal_buf.float()
