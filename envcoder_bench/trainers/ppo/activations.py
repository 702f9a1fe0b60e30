"""rl_games' activations and their derivatives, in place, on layers of all groups."""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

_aten = torch.ops.aten
_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


class Activation(NamedTuple):
    """An elementwise function that overwrites its input.

    Attributes:
        forward: ``(z, kept)`` overwrites z with the function's value, and fills ``kept`` for the backward pass.
        backward: ``(grad, y, kept)`` overwrites the gradient by the value y with the gradient by z.
        keeps: whether the backward pass needs ``kept``, a buffer of z's shape; otherwise it may be None.
    """

    forward: Callable[[Tensor, Tensor | None], object]
    backward: Callable[[Tensor, Tensor, Tensor | None], object]
    keeps: bool


def get_activation(name: str, device: torch.device) -> Activation:
    """Return an activation of rl_games by its name in the YAML."""
    return _ELU_CPU if name == "elu" and device.type == "cpu" else _ACTIVATIONS[name]


def _from_output(forward: Callable[[Tensor], Tensor], backward: Callable[[Tensor, Tensor], object]) -> Activation:
    """Return an activation whose derivative is computed from its value."""
    return Activation(lambda z, kept: forward(z), lambda grad, y, kept: backward(grad, y), keeps=False)


def _from_input(forward: Callable[[Tensor], Tensor], backward: Callable[[Tensor, Tensor], object]) -> Activation:
    """Return an activation whose derivative is computed from its input."""

    def keep_and_apply(z: Tensor, kept: Tensor | None) -> None:
        z.copy_(forward(z if kept is None else kept.copy_(z)))

    return Activation(keep_and_apply, lambda grad, y, kept: backward(grad, kept), keeps=True)  # type: ignore[arg-type]


def _elu_cpu(z: Tensor, kept: Tensor | None) -> None:
    # max(z, e) with e = exp(min(z, 0)) - 1, whose derivative is 1 + e; on a CPU exp costs a sixth of elu's expm1
    below = torch.clamp(z, max=0.0, out=kept).exp_().sub_(1.0)
    torch.maximum(z, below, out=z)


_ELU_CPU = Activation(_elu_cpu, lambda grad, y, kept: grad.addcmul_(grad, kept), keeps=True)  # type: ignore[arg-type]

ELU = _from_output(F.elu_, lambda g, y: _aten.elu_backward.grad_input(g, 1, 1, 1, True, y, grad_input=g))

NONE = _from_output(lambda z: z, lambda g, y: g)

_ACTIVATIONS: dict[str, Activation] = {
    "relu": _from_output(torch.relu_, lambda g, y: _aten.threshold_backward.grad_input(g, y, 0, grad_input=g)),
    "tanh": _from_output(torch.tanh_, lambda g, y: _aten.tanh_backward.grad_input(g, y, grad_input=g)),
    "sigmoid": _from_output(torch.sigmoid_, lambda g, y: _aten.sigmoid_backward.grad_input(g, y, grad_input=g)),
    "elu": ELU,
    "selu": _from_output(
        F.selu_,
        lambda g, y: _aten.elu_backward.grad_input(g, _SELU_ALPHA, _SELU_SCALE, 1, True, y, grad_input=g),
    ),
    "swish": _from_input(F.silu, lambda g, z: _aten.silu_backward.grad_input(g, z, grad_input=g)),
    "gelu": _from_input(F.gelu, lambda g, z: _aten.gelu_backward.grad_input(g, z, grad_input=g)),
    "softplus": _from_input(F.softplus, lambda g, z: _aten.softplus_backward.grad_input(g, z, 1, 20, grad_input=g)),
    "None": NONE,
}
