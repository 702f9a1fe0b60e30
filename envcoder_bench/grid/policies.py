"""Policies from files: TorchScript, ONNX, a checkpoint of this package's runs, or one of rsl_rl."""

from __future__ import annotations

import hashlib
import logging
import math
import pickle
import re
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping

import torch
from torch import Tensor, nn

from envcoder_bench.core.errors import UserError
from envcoder_bench.grid.layouts import Layout
from envcoder_bench.grid.robots import ROBOTS, Robot

_RSL_LAYER = re.compile(r"(?:actor\.)?(?:mlp\.)?(\d+)\.weight")
_ROWS = (64, 16, 4, 1)
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadedPolicy:
    """A policy of a grid.

    Attributes:
        name: its name in the grid.
        file: the file it was read from.
        kind: what the file is.
        module: observations ``(n, obs_dim)`` to actions ``(n, joints)``.
        layout: what it observes.
        capturable: whether it can be part of a CUDA graph.
        rows: rows of a call on the CPU, with which a row's bits do not depend on the others.
    """

    name: str
    file: str
    kind: str
    module: nn.Module
    layout: Layout
    capturable: bool
    rows: int

    @torch.no_grad()
    def act(self, obs: Tensor) -> Tensor:
        """Return actions ``(n, joints)``; on a CPU each row's bits depend on that row alone."""
        if obs.device.type != "cpu":
            return _actions(self.module(obs))
        return in_blocks(self.module, obs, self.rows)


def in_blocks(module: nn.Module, obs: Tensor, rows: int) -> Tensor:
    """Call a module with blocks of ``rows`` rows, the last of which is filled up with zeros."""
    padded = torch.nn.functional.pad(obs, (0, 0, 0, -len(obs) % rows))
    found = [_actions(module(padded[k : k + rows])) for k in range(0, len(padded), rows)]
    return torch.cat(found)[: len(obs)]


def _actions(out: Any) -> Tensor:
    return out[0] if isinstance(out, (tuple, list)) else out


def load_policy_file(
    name: str,
    path: str | Path,
    layouts: Mapping[str, Layout],
    layout: str | None,
    robot: Robot,
    settings: Mapping[str, Any] | None = None,
) -> LoadedPolicy:
    """Read a policy.

    Args:
        name: its name in the grid.
        path: the file, or a run folder's candidate with a ``policy.pth``.
        layouts: the known layouts by name.
        layout: one of them; None for the first whose width is that of the policy.
        robot: the robot that it moves.
        settings: those of the grid.

    Returns:
        The policy, on the CPU.

    Raises:
        UserError: the file cannot be read, or the policy has other widths.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "policy.pth"
    if not path.is_file():
        raise UserError(f"policy {name}: there is no file {path}")
    kind, module, capturable = _read(name, path)
    module.eval()
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    found = _width(module, layouts)
    if isinstance(module, RunPolicy):
        layout = _layout_of_run(name, module, found, layouts, layout, robot, settings or {})
    chosen = _layout(name, path, found, layouts, layout)
    obs = torch.full((1, chosen.width), 0.5)
    with torch.no_grad():
        try:
            out = _actions(module(obs))
            first = out.clone() if isinstance(out, Tensor) else None  # a module may write to what it returned
            again = _actions(module(obs))
        except Exception as error:
            message = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
            raise UserError(
                f"policy {name}: {path} does not take the {chosen.width} observations of the layout {chosen.name}:"
                f" {message}"
            ) from error
    joints = len(robot.dof_names)
    if not isinstance(out, Tensor) or tuple(out.shape) != (1, joints):
        shape = tuple(out.shape)[1:] if isinstance(out, Tensor) else type(out).__name__
        raise UserError(f"policy {name}: {path} returns actions of width {shape}, and the robot has {joints} joints")
    if first is None or not torch.equal(first, again):
        raise UserError(
            f"policy {name}: {path} returns different actions for the same observation: policies with memory or noise"
            " are not supported"
        )
    return LoadedPolicy(name, str(path), kind, module, chosen, capturable, _rows(module, chosen.width))


def digest(path: str | Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _layout_of_run(
    name: str,
    module: RunPolicy,
    width: int | None,
    layouts: Mapping[str, Layout],
    wanted: str | None,
    robot: Robot,
    settings: Mapping[str, Any],
) -> str | None:
    """Return the layout of a policy of a run, if it is known; warn of drives that differ from those of its training."""
    known = [task for other in ROBOTS.values() for task in other.tasks]
    if module.task in known and module.task not in robot.tasks:
        raise UserError(f"policy {name}: it is of the task {module.task}, and the robot is {robot.name}")
    usual = settings.get("task_layouts", {}).get(module.task, "")
    if wanted is None and module.observes:
        raise UserError(
            f"policy {name}: its candidate has a compute_observation of its own: give --layouts {name}=LAYOUT with a"
            f" layout that is the same (the task's human baseline observes as {usual or 'no known layout'})"
        )
    own = settings.get("robots", {}).get(robot.name, {})
    for key, setting in (("stiffness", "stiffness"), ("damping", "damping"), ("actionScale", "action_scale")):
        value = module.control.get(key)
        if value is not None and setting in own and float(value) != float(own[setting]):
            place = f"robots.{robot.name}.{setting}"
            log.warning("policy %s: it was trained with %s=%s, and the grid has %s", name, place, value, own[setting])
    return usual if wanted is None and usual in layouts and layouts[usual].width == width else wanted


def _layout(name: str, path: Path, width: int | None, layouts: Mapping[str, Layout], wanted: str | None) -> Layout:
    sizes = ", ".join(f"{own.name} {own.width}" for own in layouts.values())
    if wanted is not None:
        own = layouts[wanted]
        if width is not None and width != own.width:
            raise UserError(
                f"policy {name}: {path} takes {width} observations, and the layout {wanted} has {own.width}"
                f" (layouts: {sizes})"
            )
        return own
    if width is None:
        raise UserError(f"policy {name}: {path} does not say how many observations it takes: give --layouts {name}=...")
    for own in layouts.values():
        if own.width == width:
            return own
    raise UserError(
        f"policy {name}: {path} takes {width} observations, and no layout has as many (layouts: {sizes}): define one in"
        " cfg/eval_policies.yaml (docs/eval_policies.md)"
    )


def _read(name: str, path: Path) -> tuple[str, nn.Module, bool]:
    """Return the kind of a file, its module, and whether that can be captured in a CUDA graph."""
    if path.suffix == ".onnx":
        return ("onnx", *_onnx(name, path))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return "torchscript", torch.jit.load(str(path), map_location="cpu"), True
    except (RuntimeError, ValueError, zipfile.BadZipFile, EOFError):
        pass
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        raise UserError(
            f"policy {name}: {path} cannot be read: it must be TorchScript, ONNX (.onnx), a policy.pth of a run, or a"
            " checkpoint of rsl_rl"
        ) from error
    if isinstance(saved, Mapping) and ("model_state_dict" in saved or "actor_state_dict" in saved):
        return "rsl_rl", _rsl_rl(name, path, saved), True
    return "envcoder_bench", _own(name, path), True


def _own(name: str, path: Path) -> nn.Module:
    """Build the policy of a candidate from its run folder, with the clips of its task."""
    from envcoder_bench.export.module import ExportedPolicy
    from envcoder_bench.run.policies import load_policy, open_run
    from envcoder_bench.shaping.kinds import defined_types
    from envcoder_bench.tasks.base import HUMAN

    candidate = path.resolve().parent
    if candidate.parent.name != "candidates":
        raise UserError(
            f"policy {name}: {path} must stay in its run folder, runs/NAME/candidates/CANDIDATE/policy.pth; elsewhere"
            " use envcoder-bench export"
        )
    run = open_run(candidate.parent.parent)
    seed = re.fullmatch(r"policy_seed_(\d+)\.pth", path.name)
    policy = load_policy(run, candidate.name, int(seed[1]) if seed else None)
    defined = set(defined_types(run.source(candidate.name).source))
    if run.cfg.shaper_types is not None:
        defined &= set(run.cfg.shaper_types)
    if defined & {"compute_torque", "compute_dof_target"}:
        raise UserError(
            f"policy {name}: the candidate {candidate.name} has an action function of its own, and a grid's robots have"
            " joint position targets: stance + action_scale * action"
        )
    own = "compute_observation" in defined and candidate.name != HUMAN
    env = run.cfg.task.env
    limits = float(env.get("clipObservations", math.inf)), float(env.get("clipActions", math.inf))
    return RunPolicy(ExportedPolicy(policy.module, *limits), run.cfg.task.name, dict(env.get("control", {})), own)


class RunPolicy(nn.Module):
    """A policy of a run.

    Attributes:
        task: the name of its task.
        control: the task's settings of the drives.
        observes: whether its candidate has an observation function of its own.
    """

    def __init__(self, policy: nn.Module, task: str, control: Mapping[str, Any], observes: bool) -> None:
        super().__init__()
        self.policy, self.task, self.control, self.observes = policy, task, control, observes

    def forward(self, obs: Tensor) -> Tensor:
        return self.policy(obs)[0]


def _rsl_rl(name: str, path: Path, saved: Mapping[str, Any]) -> nn.Module:
    """Build rsl_rl's actor: linear layers with ELU, and the normalizer of observations if there is one."""
    weights = saved.get("actor_state_dict") or saved["model_state_dict"]
    numbers = {
        int(found[1]): key
        for key in weights
        for found in [_RSL_LAYER.fullmatch(key)]
        if found and ("actor_state_dict" in saved or key.startswith("actor."))
    }
    if not numbers:
        raise UserError(f"policy {name}: {path} is a checkpoint of rsl_rl without an actor of linear layers")
    layers: list[nn.Module] = []
    stored = saved.get("obs_norm_state_dict") or {
        key.split("actor_obs_normalizer.")[-1]: value for key, value in weights.items() if "obs_normalizer." in key
    }
    if "_mean" in stored and "_std" in stored:
        layers.append(_Standardized(stored["_mean"], stored["_std"]))
    for number in sorted(numbers):
        weight = weights[numbers[number]]
        layer = nn.Linear(weight.shape[1], weight.shape[0])
        layer.load_state_dict({"weight": weight, "bias": weights[numbers[number].replace("weight", "bias")]})
        layers += [layer, nn.ELU()]
    return nn.Sequential(*layers[:-1])


class _Standardized(nn.Module):
    """rsl_rl's normalization: (x - mean) / (std + 0.01)."""

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean.reshape(1, -1).float())
        self.register_buffer("std", std.reshape(1, -1).float() + 0.01)
        self.mean: Tensor
        self.std: Tensor

    def forward(self, obs: Tensor) -> Tensor:
        return (obs - self.mean) / self.std


def _onnx(name: str, path: Path) -> tuple[nn.Module, bool]:
    """Rebuild an ONNX graph of plain operators in torch; others run in onnxruntime on the CPU."""
    try:
        import onnx
    except ImportError as error:
        raise UserError(f"policy {name}: an .onnx file needs the package onnx: pip install onnx onnxruntime") from error
    try:
        model = onnx.load(str(path))
    except Exception as error:  # protobuf's errors have no common class
        raise UserError(f"policy {name}: {path} cannot be read: it is damaged, or not ONNX") from error
    from envcoder_bench.grid.onnx_torch import OnnxGraph, OnnxSession, supported

    if supported(model):
        return OnnxGraph(model), True
    try:
        return OnnxSession(path), False
    except ImportError as error:
        raise UserError(f"policy {name}: {path} needs the package onnxruntime: pip install onnxruntime") from error


def _width(module: nn.Module, layouts: Mapping[str, Layout]) -> int | None:
    """Return the width of a policy's observations: that of its first linear layer, or that which it takes."""
    declared = getattr(module, "obs_dim", None)
    if isinstance(declared, int):
        return declared
    for own in dict.fromkeys(layout.width for layout in layouts.values()):
        try:
            with torch.no_grad():
                module(torch.zeros(1, own))
            return own
        except Exception:  # whatever a foreign module raises for another width
            continue
    for key, weight in module.state_dict().items():
        if key.endswith("weight") and weight.dim() == 2:
            return int(weight.shape[1])
    return None


def _rows(module: nn.Module, width: int) -> int:
    """Return the largest block of _ROWS with which a row's bits do not depend on its place and on the other rows."""
    generator = torch.Generator().manual_seed(0)
    for rows in _ROWS[:-1]:
        obs = torch.randn(rows, width, generator=generator)
        with torch.no_grad():
            try:
                found = _actions(module(obs))
                turned = _actions(module(obs.roll(1, 0).contiguous())).roll(-1, 0)
                alone = in_blocks(module, obs[rows // 2 : rows // 2 + 1], rows)
            except Exception:  # a module that takes one row at a time
                continue
        if torch.equal(found, turned) and torch.equal(alone[0], found[rows // 2]):
            return rows
    return 1
