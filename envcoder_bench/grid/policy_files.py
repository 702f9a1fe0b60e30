"""Policies from files: TorchScript, ONNX, or a checkpoint of this package's runs or of rsl_rl."""

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from envcoder_bench.compat.torch_archive import ArchiveError, load_plain
from envcoder_bench.core.errors import UserError
from envcoder_bench.grid.torchscript import MOST_OPERATORS, load_torchscript

INSTALL = "pip install 'envcoder-bench[export]'"
_LOOPS = {"Loop", "Scan", "SequenceMap"}
_RSL_MEMORY = re.compile(r"(?:memory_a\.)?rnn\.(?:rnn\.)?((?:weight|bias)_[ih]h_l\d+)")
_RSL_LAYER = re.compile(r"(?:actor\.)?(?:mlp\.)?(\d+)\.weight")


class RunPolicy(nn.Module):
    """A policy of a run.

    Attributes:
        control: the task's settings of the drives.
        observes: whether its candidate has an observation function of its own.
    """

    def __init__(self, policy: nn.Module, task: str, control: Mapping[str, Any], observes: bool) -> None:
        super().__init__()
        self.policy, self.task, self.control, self.observes = policy, task, control, observes

    def forward(self, obs: Tensor) -> Tensor:
        return self.policy(obs)[0]


def read_policy(name: str, path: Path) -> tuple[str, nn.Module, bool]:
    """Return a file's kind, its module, and whether a CUDA graph can contain the module."""
    if path.suffix == ".onnx":
        return ("onnx", *_onnx(name, path))
    try:
        module = load_torchscript(name, path)
        if module is not None:
            return "torchscript", module, True
        saved = load_plain(path)
        if isinstance(saved, Mapping) and ("model_state_dict" in saved or "actor_state_dict" in saved):
            return "rsl_rl", _rsl_rl(name, path, saved), True
    except UserError:
        raise
    except ArchiveError as error:
        raise UserError(f"policy {name}: {path} is refused: {error}") from error
    except Exception as error:  # an unpickler can raise anything
        raise UserError(
            f"policy {name}: {path} cannot be read: it must be TorchScript, ONNX (.onnx), a policy.pth of a run, or a"
            " checkpoint of rsl_rl"
        ) from error
    return "envcoder_bench", _run_policy(name, path), True


def _run_policy(name: str, path: Path) -> nn.Module:
    """Build the policy of a candidate from its run folder, with the clips of its task."""
    from envcoder_bench.export.module import ExportedPolicy
    from envcoder_bench.run.folder.policies import load_policy, open_run
    from envcoder_bench.shaping.text import defined_kinds
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
    # a grid drives joint positions: a candidate's own torques cannot be used
    defined = defined_kinds(run.source(candidate.name).source)
    if run.cfg.shaper_types is not None:
        defined &= set(run.cfg.shaper_types)
    if defined & {"compute_torque", "compute_dof_target"}:
        raise UserError(
            f"policy {name}: the candidate {candidate.name} has an action function of its own, and a grid's robots have"
            " joint position targets: stance + action_scale * action"
        )
    # the policy was trained with these clips
    observes = "compute_observation" in defined and candidate.name != HUMAN
    env = run.cfg.task.env
    limits = float(env.get("clipObservations", math.inf)), float(env.get("clipActions", math.inf))
    return RunPolicy(ExportedPolicy(policy.module, *limits), run.cfg.task.name, dict(env.get("control", {})), observes)


def _rsl_rl(name: str, path: Path, saved: Mapping[str, Any]) -> nn.Module:
    """Build rsl_rl's actor: linear layers with ELU, after the normalizer of observations if the file has one."""
    # newer versions save the actor by itself; older versions save it as a part of the model
    weights = saved.get("actor_state_dict") or saved["model_state_dict"]
    keys_by_number = {}
    for key in weights:
        match = _RSL_LAYER.fullmatch(key)
        if match and ("actor_state_dict" in saved or key.startswith("actor.")):
            keys_by_number[int(match[1])] = key
    if not keys_by_number:
        raise UserError(f"policy {name}: {path} is a checkpoint of rsl_rl without an actor of linear layers")
    layers: list[nn.Module] = []
    matches = {key: _RSL_MEMORY.fullmatch(key) for key in weights}
    memory = {match[1]: weights[key] for key, match in matches.items() if match}
    # the runner has the normalizer in older versions, the model in newer ones
    stored = saved.get("obs_norm_state_dict") or {
        key.split("actor_obs_normalizer.")[-1]: value for key, value in weights.items() if "obs_normalizer." in key
    }
    if "_mean" in stored and "_std" in stored:
        layers.append(_Standardized(stored["_mean"], stored["_std"]))
    first = len(layers)
    for _, key in sorted(keys_by_number.items()):
        weight = weights[key]
        layer = nn.Linear(weight.shape[1], weight.shape[0])
        layer.load_state_dict({"weight": weight, "bias": weights[key.replace("weight", "bias")]})
        layers += [layer, nn.ELU()]
    layers.pop()  # no activation behind the last layer
    if not memory:
        return nn.Sequential(*layers)
    return Recurrent(nn.Sequential(*layers[:first]), memory, nn.Sequential(*layers[first:]))


class Recurrent(nn.Module):
    """A policy with an LSTM or a GRU: observations and memory side by side to actions and memory.

    Args:
        before, behind: layers.
        weights: of ``nn.LSTM`` or ``nn.GRU``, by their names.
    """

    def __init__(self, before: nn.Module, weights: Mapping[str, Tensor], behind: nn.Module) -> None:
        super().__init__()
        hidden, self.obs_dim = weights["weight_hh_l0"].shape[1], weights["weight_ih_l0"].shape[1]
        gates, count = len(weights["weight_ih_l0"]) // hidden, sum(name.startswith("weight_ih") for name in weights)
        self.before, self.behind, self._lstm = before, behind, gates == 4
        self.rnn = (nn.LSTM if self._lstm else nn.GRU)(self.obs_dim, hidden, count)
        self.rnn.load_state_dict(dict(weights))
        self._shape = (2 if self._lstm else 1, count, hidden)
        self.memory_dim = math.prod(self._shape)

    def forward(self, both: Tensor) -> Tensor:
        obs, memory = both[:, : self.obs_dim], both[:, self.obs_dim :]
        states = [x.contiguous() for x in memory.view(-1, *self._shape).permute(1, 2, 0, 3)]
        out, kept = self.rnn(self.before(obs).unsqueeze(0), tuple(states) if self._lstm else states[0])
        kept = torch.stack(kept if self._lstm else (kept,)).permute(2, 0, 1, 3)
        return torch.cat([self.behind(out[0]), kept.reshape(len(both), -1)], dim=1)


def memory_of(module: nn.Module) -> int:
    """Return how many numbers a policy takes and returns besides observations and actions."""
    memory = getattr(module, "memory_dim", 0)
    return memory if isinstance(memory, int) else 0


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
    """Rebuild an ONNX graph of plain operators in torch; other graphs run in onnxruntime on the CPU."""
    try:
        import onnx
    except ImportError as error:
        raise UserError(f"policy {name}: an .onnx file needs the package onnx: {INSTALL}") from error
    try:
        model = onnx.load(str(path))
        _refuse_endless(name, path, model)
        return (OnnxGraph(model), True) if supported(model) else (OnnxSession(path), False)
    except ImportError as error:
        raise UserError(f"policy {name}: {path} needs the package onnxruntime: {INSTALL}") from error
    except UserError:
        raise
    except Exception as error:  # protobuf's and onnxruntime's errors have no common class
        raise UserError(f"policy {name}: {path} cannot be read: it is damaged, or not ONNX") from error


def _refuse_endless(name: str, path: Path, model: Any) -> None:
    """Raise UserError if a graph has loops, or functions that call each other too often."""
    functions = {(function.domain, function.name): function.node for function in model.functions}
    counts: dict[tuple[str, str], int] = {}

    def count(nodes: Any) -> int:
        return sum(map(operators, nodes))

    def operators(node: Any) -> int:
        if node.op_type in _LOOPS:
            raise UserError(f"policy {name}: {path} is refused: its operator {node.op_type} may not end")
        graphs = [graph for value in node.attribute for graph in (value.g, *value.graphs)]
        key = (node.domain, node.op_type)
        if key in functions and key not in counts:
            counts[key] = MOST_OPERATORS + 1  # refuses a function that calls itself
            counts[key] = count(functions[key])
        return 1 + counts.get(key, 0) + sum(count(graph.node) for graph in graphs)

    if count(model.graph.node) > MOST_OPERATORS:
        raise UserError(f"policy {name}: {path} is refused: a call executes more than {MOST_OPERATORS:,} operators")


# ONNX graphs of plain operators as PyTorch modules, which run on every device and in CUDA graphs


def _gemm(a: Tensor, b: Tensor, c: Tensor | None = None, **attributes: Any) -> Tensor:
    a = a.T if attributes.get("transA") else a
    b = b.T if attributes.get("transB") else b
    out = attributes.get("alpha", 1.0) * (a @ b) if attributes.get("alpha", 1.0) != 1.0 else a @ b
    if c is None:
        return out
    return out + (c if attributes.get("beta", 1.0) == 1.0 else attributes["beta"] * c)


def _clip(x: Tensor, low: Tensor | None = None, high: Tensor | None = None, **attributes: Any) -> Tensor:
    low = attributes.get("min") if low is None else low
    high = attributes.get("max") if high is None else high
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        x = x if low is None else torch.maximum(x, torch.as_tensor(low, device=x.device))
        return x if high is None else torch.minimum(x, torch.as_tensor(high, device=x.device))
    return x.clamp(low, high)


_OPERATORS: dict[str, Callable[..., Tensor]] = {
    "Gemm": _gemm,
    "MatMul": lambda a, b: a @ b,
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": lambda a, b: a / b,
    "Max": torch.maximum,
    "Min": torch.minimum,
    "Clip": _clip,
    "Relu": torch.relu,
    "Tanh": torch.tanh,
    "Sigmoid": torch.sigmoid,
    "Elu": lambda x, alpha=1.0: F.elu(x, alpha),
    "Selu": lambda x: F.selu(x),
    "LeakyRelu": lambda x, alpha=0.01: F.leaky_relu(x, alpha),
    "Softplus": lambda x: F.softplus(x),
    "Identity": lambda x: x,
    "Flatten": lambda x, axis=1: x.reshape(len(x), -1),
}
_PLAIN_ATTRIBUTES = {"alpha", "beta", "transA", "transB", "min", "max", "axis"}


def supported(model: Any) -> bool:
    """Return whether a graph has one input, and only operators that this module can rebuild."""
    graph = model.graph
    constants = {value.name for value in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    all_known = all(
        node.op_type == "Constant"
        or (node.op_type in _OPERATORS and all(value.name in _PLAIN_ATTRIBUTES for value in node.attribute))
        for node in graph.node
    )
    two_sided = all(len(node.input) == 2 for node in graph.node if node.op_type in ("Max", "Min"))
    return len(inputs) == 1 and all_known and two_sided


class OnnxGraph(nn.Module):
    """A graph's first output as a function of its input ``(n, obs_dim)``."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        from onnx import helper, numpy_helper

        graph = model.graph
        self._names: dict[str, str] = {}
        arrays = {value.name: numpy_helper.to_array(value) for value in graph.initializer}
        self._nodes: list[tuple[str, list[str], str, dict[str, Any]]] = []
        for node in graph.node:
            attributes = {value.name: helper.get_attribute_value(value) for value in node.attribute}
            if node.op_type == "Constant":
                arrays[node.output[0]] = numpy_helper.to_array(attributes["value"])
            else:
                self._nodes.append((node.op_type, list(node.input), node.output[0], attributes))
        # names of ONNX may have dots, which names of buffers may not
        for k, (name, array) in enumerate(arrays.items()):
            self._names[name] = f"constant_{k}"
            self.register_buffer(f"constant_{k}", torch.from_numpy(np.array(array)))
        self._input = next(value.name for value in graph.input if value.name not in arrays)
        self._output = graph.output[0].name
        shape = next(value for value in graph.input if value.name == self._input).type.tensor_type.shape.dim
        self.obs_dim = int(shape[-1].dim_value) or None

    def forward(self, obs: Tensor) -> Tensor:
        values: dict[str, Tensor | None] = {name: getattr(self, buffer) for name, buffer in self._names.items()}
        values.update({"": None, self._input: obs})
        for op, inputs, target, attributes in self._nodes:
            values[target] = _OPERATORS[op](*(values[name] for name in inputs), **attributes)
        output = values[self._output]
        assert output is not None
        return output


class OnnxSession(nn.Module):
    """A graph in onnxruntime, on the CPU.

    Inputs and outputs behind the first, as many of both, are memory, ``(layers, n, hidden)`` each as Isaac Lab exports
    it. Then the module takes observations and memory side by side, and returns actions and memory so.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        value, *states = self._session.get_inputs()
        outputs = self._session.get_outputs()
        self._input, self._names = value.name, [each.name for each in states]
        self.obs_dim = value.shape[-1] if isinstance(value.shape[-1], int) else None
        shapes = [each.shape for each in states]
        is_memory = len(outputs) == 1 + len(states) and self.obs_dim is not None
        if not (is_memory and all(len(shape) == 3 and {int} == {type(x) for x in shape[::2]} for shape in shapes)):
            self._names, shapes = [], []
        self._shapes = [(shape[0], shape[2]) for shape in shapes]
        self.memory_dim = sum(layers * hidden for layers, hidden in self._shapes)

    def forward(self, both: Tensor) -> Tensor:
        rows = both.cpu()
        if not self._names:
            return torch.from_numpy(self._session.run(None, {self._input: rows.numpy()})[0]).to(both.device)
        sizes = [layers * hidden for layers, hidden in self._shapes]
        obs, *parts = (x.contiguous() for x in rows.split([rows.shape[1] - sum(sizes), *sizes], dim=1))
        feed = {self._input: obs.numpy()}
        for name, part, shape in zip(self._names, parts, self._shapes):
            feed[name] = part.view(-1, *shape).transpose(0, 1).contiguous().numpy()
        actions, *kept = (torch.from_numpy(x) for x in self._session.run(None, feed))
        flat = [x.transpose(0, 1).reshape(len(rows), -1) for x in kept]
        return torch.cat([actions, *flat], dim=1).to(both.device)
