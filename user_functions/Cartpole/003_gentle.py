"""A tenth of the force: 40 N where the baselines push with up to 400 N.

A policy explores with noise of size 1 in its action, whatever that is in newtons. 400 N throw the cart about, and 40 N
are plenty to balance; but what the policy says now counts a tenth, too, and it must learn to say it ten times louder.
Which of the two wins? See at which iteration the curves rise.
"""
ACTION_DIM = 1


def compute_torque(action, state_dict):
    force = 0.1 * state_dict["max_push_effort"] * action
    return torch.cat((force, torch.zeros_like(force)), dim=-1)  # the pole is passive
