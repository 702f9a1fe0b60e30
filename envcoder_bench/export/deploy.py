"""A policy as the runtime of Unitree's robots reads it: deploy.yaml, beside the policy's ONNX file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import yaml

HEADER = "# EnvCoderBench\n"  # the first line of its files
# names of mjlab's observation terms, and those of the runtime's functions
_OBSERVATIONS = {
    **{name: name for name in ("base_lin_vel", "base_ang_vel", "projected_gravity")},
    "command": "velocity_commands",
    "joint_pos": "joint_pos_rel",
    "joint_vel": "joint_vel_rel",
    "actions": "last_action",
}


def deploy_yaml(deployment: Mapping[str, Any], control_step: float) -> str | None:
    """Return the text of deploy.yaml; None if it does not have functions for the observations.

    The joints of the SDK are taken to be in the order of the policy's, as in Unitree's models. The runtime as it is
    shipped does not compute ``base_lin_vel``.

    Args:
        deployment: as ``Task.deployment`` returns it.
        control_step: seconds.
    """
    terms = deployment.get("observation_names")
    if not terms or any(name not in _OBSERVATIONS for name in terms):
        return None
    if "command" in terms and not deployment["command_ranges"]:  # not a command of velocity
        return None
    joints = list(range(len(deployment["joint_names"])))
    observations = {}
    for k, name in enumerate(terms):
        history = max(1, deployment["observation_terms_history_length"][k])
        width, scale = deployment["observation_terms_width"][k] // history, deployment["observation_terms_scale"][k]
        clip = deployment["observation_terms_clip"][k]
        observations[_OBSERVATIONS[name]] = {
            "params": {"command_name": "base_velocity"} if name == "command" else {},
            "clip": clip if any(map(math.isfinite, clip)) else None,  # one end may be .inf, which yaml-cpp reads
            "scale": list(scale) if isinstance(scale, list) else [scale] * width,
            "history_length": history,
        }
    action = {"clip": None, "joint_names": [".*"], "joint_ids": None}
    action |= {"scale": deployment["action_scale"], "offset": deployment["action_offset"]}
    document = {
        "joint_ids_map": joints,
        "step_dt": control_step,
        "stiffness": deployment["joint_stiffness"],
        "damping": deployment["joint_damping"],
        "default_joint_pos": deployment["default_joint_pos"],
        "commands": {"base_velocity": {"ranges": {"heading": None, **deployment["command_ranges"]}}},
        "actions": {"JointPositionAction": action},
        "observations": observations,
    }
    return HEADER + yaml.safe_dump(_rounded(document), sort_keys=False, default_flow_style=None)


def _rounded(value: Any) -> Any:
    """Return a value whose numbers have the digits of single precision."""
    if isinstance(value, dict):
        return {key: _rounded(x) for key, x in value.items()}
    if isinstance(value, list):
        return [_rounded(x) for x in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value
