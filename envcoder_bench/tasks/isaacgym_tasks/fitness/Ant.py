"""Forward speed: how fast the robot nears its far target, m/s, averaged over the full episode (0 after a fall)

As in Eureka's Ant (Ma et al. 2023, github.com/eureka-research/Eureka, tasks/ant.py: `consecutive_successes` is the
mean of the potential's gain, which is the distance to the target over dt).
"""


def compute_fitness(potentials, prev_potentials):
    """The potential's gain in this step: the speed towards the target."""
    return potentials - prev_potentials
