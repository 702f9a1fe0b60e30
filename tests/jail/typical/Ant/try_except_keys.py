"""Works with or without sensor data."""
import contextlib
import copy

import torch

DEFAULTS = {"weights": {"speed": 1.0, "contact": -1e-4}, "keys": ["vec_sensor_tensor", "foot_forces"]}
SETTINGS = copy.deepcopy(DEFAULTS)
SETTINGS["weights"].update(speed=1.5)


def compute_reward(state_dict):
    forces = None
    for key in SETTINGS["keys"]:
        try:
            forces = state_dict[key]
            break
        except KeyError:
            continue
    velocity = state_dict.get("root_states")[:, 7]
    reward = SETTINGS["weights"]["speed"] * velocity
    with contextlib.suppress(AttributeError):
        reward = reward + SETTINGS["weights"]["contact"] * forces.abs().sum(dim=-1)
    if "torso_quat" in state_dict:
        reward = reward + state_dict["torso_quat"][:, 3]
    return reward
