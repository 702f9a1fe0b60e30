"""Episodes end where the Ant has turned over, and speed pays as far as the torso is upright.

An Ant on its back can still crawl, and the task lets it: the human baseline ends an episode by height alone. Here
what the policy can no longer learn from is cut short.
"""


def compute_terminal(state_dict):
    turned_over = state_dict["up_vec"][:, 2] < 0.0
    return turned_over | (state_dict["root_states"][:, 2] < state_dict["termination_height"])


def compute_reward(state_dict):
    upright = torch.clamp(state_dict["up_vec"][:, 2], min=0.0)
    speed = state_dict["potentials"] - state_dict["prev_potentials"]
    components = {
        "speed": speed * upright,
        "upright": 0.5 * upright,
        "effort": -0.005 * torch.sum(torch.square(state_dict["actions"]), dim=1),
    }
    return sum(components.values()), components
