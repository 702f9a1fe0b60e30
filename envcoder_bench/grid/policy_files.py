"""Policies from files: TorchScript, ONNX, a checkpoint of this package's runs, or one of rsl_rl."""

import math
import pickle
import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from envcoder_bench.core.errors import UserError

_RSL_LAYER = re.compile(r"(?:actor\.)?(?:mlp\.)?(\d+)\.weight")


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


def read_policy(name: str, path: Path) -> tuple[str, nn.Module, bool]:
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
    from envcoder_bench.run.folder.policies import load_policy, open_run
    from envcoder_bench.shaping.definitions import defined_types
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
