"""Tracking reward with logging, warnings and defensive checks."""
import logging
import warnings

import torch

logger = logging.getLogger(__name__)
logger.setLevel(logging.WARNING)
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")

REQUIRED_KEYS = ("root_states", "commands", "torques", "dof_vel")


def _validate(state_dict):
    missing = [key for key in REQUIRED_KEYS if key not in state_dict]
    if missing:
        raise KeyError("Missing keys in state_dict: {}".format(", ".join(missing)))
    if state_dict["commands"].dim() != 2:
        warnings.warn("commands should be two dimensional", UserWarning)


def compute_reward(state_dict):
    _validate(state_dict)
    root_states = state_dict["root_states"]
    logger.debug("computing reward for %d environments on %s", root_states.shape[0], root_states.device)

    forward_error = (state_dict["commands"][:, 0] - root_states[:, 7]) ** 2
    lateral_error = (state_dict["commands"][:, 1] - root_states[:, 8]) ** 2
    tracking = torch.exp(-(forward_error + lateral_error) / 0.25)
    power = torch.sum(torch.clamp(state_dict["torques"] * state_dict["dof_vel"], min=0.0), dim=1)
    reward = tracking - 3e-4 * power
    logger.info("reward has shape %s", tuple(reward.shape))
    return reward, {"tracking": tracking, "power": -3e-4 * power}
