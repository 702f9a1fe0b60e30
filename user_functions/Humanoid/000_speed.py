"""A reward for speed, with what a runner needs made plain: stay up, look ahead, keep the head still.

Every term is bounded, so that none can drown the others: a policy that dives forward for one step's speed loses the
reward of all later steps.
"""


def compute_reward(state_dict):
    root_states = state_dict["root_states"]
    speed = state_dict["potentials"] - state_dict["prev_potentials"]  # m/s towards the target
    components = {
        "speed": torch.clamp(speed, -2.0, 8.0),
        "alive": torch.full_like(speed, 2.0),
        "upright": torch.clamp(state_dict["up_vec"][:, 2], min=0.0),
        "facing": 0.5 * state_dict["heading_vec"][:, 0],
        "bounce": -0.2 * torch.clamp(torch.square(root_states[:, 9]), max=5.0),
        "wobble": -0.02 * torch.clamp(torch.sum(torch.square(root_states[:, 10:13]), dim=1), max=25.0),
        "effort": -0.01 * torch.sum(torch.square(state_dict["actions"]), dim=1),
    }
    return sum(components.values()), components
