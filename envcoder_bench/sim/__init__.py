"""Simulators behind one interface. Only this package, compat/ and mujoco_batches import a physics engine."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from envcoder_bench.core import SIMULATORS
from envcoder_bench.core.errors import near_matches
from envcoder_bench.sim.base import Gains, Simulator
from envcoder_bench.sim.ground import Box, Ground, HeightField

__all__ = [
    "SIMULATORS",
    "Box",
    "Ground",
    "HeightField",
    "Simulator",
    "in_background",
    "make_simulator",
    "pick_simulator",
]


def pick_simulator(sim: str = "auto", device: str = "auto") -> tuple[str, str]:
    """Resolve the flags ``--sim`` and ``--device`` to a simulator's name and a torch device.

    ``auto`` means MuJoCo Warp on the first CUDA device if there is one, else MuJoCo on the CPU.

    Raises:
        ValueError: unknown simulator or device, a missing CUDA device, or a pair that is not supported.
    """
    if sim not in ("auto", *SIMULATORS):
        hint = near_matches(sim, SIMULATORS)
        raise ValueError(f"unknown simulator '{sim}': choose auto, {' or '.join(SIMULATORS)}{hint}")
    if device != "auto":
        device = _check_device(device)
    on_cuda = device.startswith("cuda")
    if sim == "mujoco_cpu" and on_cuda:
        raise ValueError(f"mujoco_cpu runs on the CPU, not on {device}: use --sim mujoco_warp, or --device cpu")
    if device == "auto":
        on_cuda = sim != "mujoco_cpu" and torch.cuda.is_available()
        device = "cuda:0" if on_cuda else "cpu"
    if sim == "auto":
        sim = "mujoco_warp" if on_cuda else "mujoco_cpu"
    return sim, device


def _check_device(device: str) -> str:
    """Return a device's full name, such as ``cuda:0`` for ``cuda``; raise ValueError if it does not exist."""
    try:
        parsed = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"unknown device '{device}': choose auto, cpu or cuda:0") from error
    if parsed.type == "cpu":
        return "cpu"
    if parsed.type != "cuda":
        raise ValueError(f"no simulator runs on '{device}': choose auto, cpu or cuda:0")
    index = parsed.index or 0
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count == 0:
        raise ValueError(f"device {device} was asked for, but torch {torch.__version__} sees no CUDA device")
    if index >= count:
        raise ValueError(f"device {device} was asked for, but there are only cuda:0 to cuda:{count - 1}")
    return f"cuda:{index}"


def make_simulator(
    name: str,
    xml: str | Path,
    num_envs: int,
    dt: float,
    substeps: int,
    device: str,
    stiffness: Gains = None,
    damping: Gains = None,
    options: Mapping[str, Any] | None = None,
    ground: Ground | None = None,
) -> Simulator:
    """Build ``num_envs`` copies of the robot in the MJCF file ``xml``, all in its default state and position mode.

    Args:
        name: the simulator, see ``pick_simulator``.
        dt, substeps: seconds per ``Simulator.step``, and the physics steps it takes.
        device: torch device of the state tensors, see ``pick_simulator``.
        stiffness, damping: gains of the position drives, N m/rad and N m s/rad, one number or one for each actuator;
            None keeps the file's.
        options: values that replace the file's ``integrator``, ``iterations`` and ``ls_iterations``.
        ground: a ground that replaces the file's plane; None keeps the plane.

    Raises:
        ImportError: this Python or environment has no MuJoCo.
        FileNotFoundError, ValueError: the model or an argument is not valid.
    """
    name, device = pick_simulator(name, device)
    if num_envs < 1:
        raise ValueError(f"a simulator needs at least one environment, got {num_envs}")
    try:  # imported here, so that this package can be imported without an engine
        from envcoder_bench.sim.mujoco_model import load_robot

        if name == "mujoco_cpu":
            from envcoder_bench.sim.mujoco_cpu import MujocoCpu as Backend
        else:
            from envcoder_bench.sim.mujoco_warp import MujocoWarp as Backend
    except ModuleNotFoundError as error:
        package = {"mujoco": "mujoco", "mujoco_warp": "mujoco-warp", "warp": "warp-lang"}.get(error.name or "")
        if package is None:
            raise
        raise ImportError(f"{name} needs the package {package}: pip install mujoco mujoco-warp") from error
    robot = load_robot(xml, dt, substeps, stiffness, damping, options, ground)
    return Backend(robot, num_envs, device)


def in_background(name: str) -> contextlib.AbstractContextManager[None]:
    """Return from ``make_simulator`` while a simulator's kernels are still being compiled, if it has kernels.

    The first call of one of its methods waits for them. Its state tensors are not filled before that.
    """
    if name == "mujoco_warp":
        with contextlib.suppress(ModuleNotFoundError):  # make_simulator says what is missing
            from mujoco_batches.physics import warp_loading

            return warp_loading.in_background()
    return contextlib.nullcontext()
