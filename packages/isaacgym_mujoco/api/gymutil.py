"""Isaac Gym's ``gymutil``: command-line arguments, and simulation parameters from a dict; lines are not drawn."""

import argparse
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import torch

from isaacgym_mujoco.on_cpu import on_cpu
from mujoco_batches.scene.params import SIM_FLEX, SIM_PHYSX, ContactCollection, SimParams
from mujoco_batches.scene.transforms import Vec3


class LineGeometry:
    """Lines for a viewer; stores its arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args, self.kwargs = args, kwargs


class AxesGeometry(LineGeometry):
    pass


class WireframeSphereGeometry(LineGeometry):
    pass


class WireframeBoxGeometry(LineGeometry):
    pass


def draw_lines(geometry: LineGeometry, gym: Any, viewer: Any, env: Any, pose: Any) -> None:
    """Do nothing: this package does not have a viewer."""


draw_line = draw_lines


def _indent_xml(element: ET.Element, level: int = 0) -> None:
    """Indent an XML tree in place."""
    children = list(element)
    if children:
        element.text = "\n" + "  " * (level + 1)
        for child in children:
            _indent_xml(child, level + 1)
            child.tail = "\n" + "  " * (level + 1)
        children[-1].tail = "\n" + "  " * level


def parse_device_str(name: str) -> tuple[str, int]:
    """Split a device such as ``cuda:1`` into ``("cuda", 1)``."""
    kind, _, number = name.lower().partition(":")
    if kind in ("cuda", "gpu") and on_cpu():
        return "cpu", 0
    if kind not in ("cpu", "cuda", "gpu") or (number and not number.isdigit()):
        raise ValueError(f"a device is cpu, cuda or cuda:N, got {name!r}")
    return ("cuda" if kind == "gpu" else kind), int(number or 0)


def parse_sim_config(config: dict[str, Any], params: SimParams) -> None:
    """Set simulation parameters from a dict, as in a task's YAML."""
    for name, value in config.items():
        if name in ("physx", "flex"):
            for inner, setting in value.items():
                setting = ContactCollection(setting) if inner == "contact_collection" else setting
                setattr(getattr(params, name), inner, setting)
        elif name == "gravity":
            params.gravity = Vec3(*value)
        elif name == "up_axis":
            params.up_axis = value if value not in ("y", "z") else ("y", "z").index(value)
        else:
            setattr(params, name, value)


def parse_arguments(
    description: str = "Isaac Gym task",
    headless: bool = False,
    no_graphics: bool = False,
    custom_parameters: list[dict[str, Any]] | None = None,
) -> argparse.Namespace:
    """Parse the standard flags and the script's own; unknown flags fail.

    The defaults are Isaac Gym's, the physics on ``cuda:0`` with the GPU pipeline, where there is a CUDA device.

    Args:
        description: for the help text.
        headless, no_graphics: whether to offer these flags.
        custom_parameters: each a dict of ``name`` and any of ``type``, ``default``, ``action``, ``help``, ``choices``.
    """
    parser = argparse.ArgumentParser(description=description)
    # flags that every script of Isaac Gym has
    if headless:
        parser.add_argument("--headless", action="store_true", help="run without a viewer")
    if no_graphics:
        parser.add_argument("--nographics", action="store_true", help="run without graphics")
    device = "cuda:0" if torch.cuda.is_available() and not on_cpu() else "cpu"
    parser.add_argument("--sim_device", default=device, help="device of the physics")
    parser.add_argument("--pipeline", default="gpu", type=str.lower, choices=["cpu", "gpu", "cuda"])
    parser.add_argument("--graphics_device_id", type=int, default=0)
    engine = parser.add_mutually_exclusive_group()
    engine.add_argument("--flex", action="store_true")
    engine.add_argument("--physx", action="store_true")
    parser.add_argument("--num_threads", type=int, default=0)
    parser.add_argument("--subscenes", type=int, default=0)
    parser.add_argument("--slices", type=int)
    # flags of this script
    for parameter in custom_parameters or []:
        settings = {k: v for k, v in parameter.items() if k in ("type", "default", "action", "help", "choices")}
        if "action" in settings or "type" in settings:
            parser.add_argument(parameter["name"], **settings)
    args = parser.parse_args()
    # derived values
    args.sim_device_type, args.compute_device_id = parse_device_str(args.sim_device)
    args.physics_engine = SIM_FLEX if args.flex else SIM_PHYSX
    args.use_gpu = args.sim_device_type == "cuda"
    if not args.use_gpu:  # Isaac Gym does the same
        args.pipeline = "CPU"
    args.use_gpu_pipeline = args.pipeline.lower() != "cpu"
    if no_graphics and args.nographics:
        args.headless = True
    args.slices = args.subscenes if args.slices is None else args.slices
    return args


def _randomization(name: str) -> Callable[..., Any]:
    def missing(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"gymutil.{name} is not supported by isaacgym_mujoco: run the script without domain randomization"
            " (task.task.randomize=False), or rank candidates with eval-shapers, whose adapter randomizes in its place"
        )

    return missing


# tasks from before IsaacGymEnvs' own dr_utils import these at the top of vec_task.py
for _name in ("get_property_setter_map", "get_property_getter_map", "get_default_setter_args", "apply_random_samples",
              "check_buckets", "generate_random_samples", "get_bucketed_val"):  # fmt: skip
    globals()[_name] = _randomization(_name)
