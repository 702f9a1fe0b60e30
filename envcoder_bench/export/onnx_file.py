"""An exported policy as ONNX: a graph of standard operators, built layer by layer."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from torch import Tensor, nn

from envcoder_bench.core.errors import UserError
from envcoder_bench.export.module import ACTIONS, COMMAND, OBS, ExportedPolicy
from envcoder_bench.trainers.offpolicy.network import RMS_NORM_EPS
from envcoder_bench.trainers.offpolicy.policy import Residual, RMSNorm, Scale
from envcoder_bench.trainers.ppo.policy import Clip, Normalizer

OPSET, IR_VERSION = 20, 9  # versions from 2023; opset 20 is the first with Gelu
_FLOAT_MAX = float(np.finfo(np.float32).max)

# the operator and its attributes for each layer
_ACTIVATIONS: dict[type[nn.Module], tuple[str, dict[str, Any]]] = {
    nn.ReLU: ("Relu", {}),
    nn.Tanh: ("Tanh", {}),
    nn.Sigmoid: ("Sigmoid", {}),
    nn.ELU: ("Elu", {"alpha": 1.0}),
    nn.SELU: ("Selu", {}),
    nn.GELU: ("Gelu", {}),
    nn.Softplus: ("Softplus", {}),
    nn.Identity: ("Identity", {}),
}


def onnx_bytes(policy: ExportedPolicy, obs_dim: int, about: str, metadata: Mapping[str, str] | None = None) -> bytes:
    """Return the content of an ONNX file.

    Args:
        about: stored as the model's documentation.
        metadata: properties of the model.

    Raises:
        UserError: the package onnx is missing, or the policy has a layer without a counterpart.
    """
    try:
        import onnx
    except ImportError as error:
        raise UserError("--format onnx needs the package onnx: pip install onnx onnxruntime") from error
    graph = _Graph(onnx.helper)
    last = OBS
    for layer in policy.policy:
        last = graph.layer(layer, last)
    graph.rename(last, ACTIONS)
    widths = {ACTIONS: graph.width}
    if policy.command is not None:
        command = policy.command
        linear = graph.layer(command.linear, ACTIONS)
        graph.rename(graph.add("Min", graph.add("Max", linear, graph.constant(command.low)),
                               graph.constant(command.high)), COMMAND)  # fmt: skip
        widths[COMMAND] = command.linear.out_features

    def values(name: str, width: int) -> Any:
        return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", width])

    outputs = [values(name, widths[name]) for name in policy.outputs]
    graph_proto = onnx.helper.make_graph(graph.nodes, "policy", [values(OBS, obs_dim)], outputs, graph.constants)
    opset = onnx.helper.make_opsetid("", OPSET)
    model = onnx.helper.make_model(graph_proto, opset_imports=[opset], producer_name="envcoder-bench", doc_string=about)
    model.ir_version = IR_VERSION  # older runtimes refuse newer versions
    onnx.helper.set_model_props(model, dict(metadata or {}))
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


class _Graph:
    """Nodes and constants in the order of their creation; every node has one output.

    Attributes:
        width: the width of the last linear layer's output.
    """

    def __init__(self, helper: Any) -> None:
        self._helper = helper
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.width = 0

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(self._helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, values: Tensor | float) -> str:
        from onnx import numpy_helper

        name = f"constant_{len(self.constants)}"
        array = np.asarray(values.numpy() if isinstance(values, Tensor) else values, dtype=np.float32)
        # a runtime may compute with infinities in other ways than torch; numpy 1 clips a single float32 to a float64
        finite = array.clip(-_FLOAT_MAX, _FLOAT_MAX).astype(np.float32)
        self.constants.append(numpy_helper.from_array(finite, name))
        return name

    def axis(self, number: int) -> str:
        from onnx import numpy_helper

        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array([number], dtype=np.int64), name))
        return name

    def rename(self, output: str, name: str) -> None:
        """Rename the output of the last node."""
        assert list(self.nodes[-1].output) == [output]
        self.nodes[-1].output[0] = name

    def layer(self, layer: nn.Module, x: str) -> str:
        """Add a layer; return the name of its output."""
        if isinstance(layer, nn.Linear):
            self.width = layer.out_features
            return self.add("Gemm", x, self.constant(layer.weight), self.constant(layer.bias), transB=1)
        if isinstance(layer, Normalizer):
            scaled = self.add("Add", self.add("Mul", x, self.constant(layer.scale)), self.constant(layer.shift))
            return self._clip(scaled, layer.limit)
        if isinstance(layer, Clip):
            return self._clip(x, layer.limit)
        if isinstance(layer, Residual):
            inner = x
            for each in layer:
                inner = self.layer(each, inner)
            return self.add("Add", x, inner)
        if isinstance(layer, RMSNorm):
            squares = self.add("ReduceMean", self.add("Mul", x, x), self.axis(-1), keepdims=1)
            root = self.add("Sqrt", self.add("Add", squares, self.constant(RMS_NORM_EPS)))
            return self.add("Mul", self.add("Div", x, root), self.constant(layer.weight))
        if isinstance(layer, Scale):
            return self.add("Mul", x, self.constant(layer.factor))
        if isinstance(layer, nn.SiLU):
            return self.add("Mul", x, self.add("Sigmoid", x))
        if type(layer) not in _ACTIVATIONS:
            raise UserError(f"a layer {type(layer).__name__} cannot be exported as onnx: use --format torchscript")
        op, attributes = _ACTIVATIONS[type(layer)]
        return self.add(op, x, **attributes)

    def _clip(self, x: str, limit: float) -> str:
        return self.add("Clip", x, self.constant(-limit), self.constant(limit))


def onnx_runner(content: bytes) -> Callable[[np.ndarray], list[Any]]:
    """Return a function that runs an ONNX model, with onnxruntime if it is installed."""
    try:
        import onnxruntime
    except ImportError:
        from onnx import load_from_string
        from onnx.reference import ReferenceEvaluator

        reference = ReferenceEvaluator(load_from_string(content))
        return lambda obs: list(reference.run(None, {OBS: obs}))
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return lambda obs: list(session.run(None, {OBS: obs}))
