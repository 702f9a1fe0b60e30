"""The Humanoid, the sparse reward: what fitness measures, and nothing else; other functions are the human baseline's.

Source: Eureka (Ma et al., 2023), whose sparse reward is the task's metric, here the distance covered in a control step.
It is the reward of unshaped.py times dt; learning may depend on the scale, because PPO clips and normalizes values.
Its code has no sparse reward to compare with, and its published score was not reproduced here.
"""


def compute_reward(potentials, prev_potentials, dt):
    """The distance by which the target has come nearer in a control step, m."""
    return (potentials - prev_potentials) * dt
