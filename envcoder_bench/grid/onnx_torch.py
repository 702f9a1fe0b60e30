"""ONNX graphs of plain operators as PyTorch modules, so that they run on every device and in CUDA graphs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F


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
    """Return whether a graph has one input, and only operators that this module knows."""
    graph = model.graph
    constants = {own.name for own in graph.initializer}
    inputs = [own for own in graph.input if own.name not in constants]
    known = all(
        node.op_type == "Constant"
        or (node.op_type in _OPERATORS and all(own.name in _PLAIN_ATTRIBUTES for own in node.attribute))
        for node in graph.node
    )
    two_sided = all(len(node.input) == 2 for node in graph.node if node.op_type in ("Max", "Min"))
    return len(inputs) == 1 and known and two_sided


class OnnxGraph(nn.Module):
    """A graph's first output as a function of its input ``(n, obs_dim)``."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        from onnx import helper, numpy_helper

        graph = model.graph
        self._names: dict[str, str] = {}
        arrays = {own.name: numpy_helper.to_array(own) for own in graph.initializer}
        self._nodes: list[tuple[str, list[str], str, dict[str, Any]]] = []
        for node in graph.node:
            attributes = {own.name: helper.get_attribute_value(own) for own in node.attribute}
            if node.op_type == "Constant":
                arrays[node.output[0]] = numpy_helper.to_array(attributes["value"])
            else:
                self._nodes.append((node.op_type, list(node.input), node.output[0], attributes))
        for k, (name, array) in enumerate(arrays.items()):
            self._names[name] = f"constant_{k}"
            self.register_buffer(f"constant_{k}", torch.from_numpy(np.array(array)))
        self._input = next(own.name for own in graph.input if own.name not in arrays)
        self._output = graph.output[0].name
        shape = next(own for own in graph.input if own.name == self._input).type.tensor_type.shape.dim
        self.obs_dim = int(shape[-1].dim_value) or None

    def forward(self, obs: Tensor) -> Tensor:
        values: dict[str, Tensor | None] = {name: getattr(self, own) for name, own in self._names.items()}
        values.update({"": None, self._input: obs})
        for op, inputs, output, attributes in self._nodes:
            values[output] = _OPERATORS[op](*(values[name] for name in inputs), **attributes)
        found = values[self._output]
        assert found is not None
        return found


class OnnxSession(nn.Module):
    """A graph in onnxruntime, on the CPU."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        own = self._session.get_inputs()[0]
        self._input = own.name
        self.obs_dim = own.shape[-1] if isinstance(own.shape[-1], int) else None

    def forward(self, obs: Tensor) -> Tensor:
        found = self._session.run(None, {self._input: obs.cpu().numpy()})[0]
        return torch.from_numpy(found).to(obs.device)
