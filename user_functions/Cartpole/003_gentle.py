"""A tenth of the force: 40 N where the baselines push with up to 400 N.

A policy explores with noise of size 1 in its action, whatever that is in newtons. 400 N throw the cart out of its range
in a few steps; 40 N are still plenty to balance, and exploring with them breaks less.
"""
ACTION_DIM = 1


def compute_torque(action, state_dict):
    force = 0.1 * state_dict["max_push_effort"] * action
    return torch.cat((force, torch.zeros_like(force)), dim=-1)  # the pole is passive
