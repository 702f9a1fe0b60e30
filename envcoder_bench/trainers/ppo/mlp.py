"""Stacked multilayer perceptrons of all groups, with an explicit backward pass in preallocated memory.

The activations are rl_games', with their derivatives, in place on layers of all groups.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from envcoder_bench.trainers.ppo.backend import Backend
from envcoder_bench.trainers.ppo.linear import elu_linear_backward, linear, product, transpose

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


# layers

Shape = tuple[int, ...]


class Tape(NamedTuple):
    """Tensors that a forward pass saves for the backward pass, and buffers of the backward pass, one for each layer.

    Their shapes are those of ``matrices``. Where layers are fused (``is_fused``), the gradient by a hidden layer's
    output overwrites the output.
    """

    inputs: list[Tensor]  # (K, N, in), with the 1 and the zeros; the first is the network's
    outputs: list[Tensor]  # (K, N, out); a hidden layer's output is part of the next input
    tails: list[Tensor]  # the other columns of the next inputs
    grads: list[Tensor]  # (K, N, out), gradients by the outputs
    input_grads: list[Tensor]  # (K, N, in), gradients by the inputs of all layers but the first
    kept: list[Tensor | None]  # buffers of the activations of hidden layers, in the next input's shape
    result: Tensor  # (K, N, out), the last output
    d_result: Tensor  # its gradient


def matrices(x: Tensor) -> Tensor:
    """Drop the first dimension if it is 1; on a CPU, bfloat16 products of 2-d tensors are three times faster."""
    return x.squeeze(0) if len(x) == 1 else x


def with_one(width: int) -> int:
    """Return a hidden layer's columns: its units, a 1 for the next layer's biases, and zeros up to a multiple of 16.

    Triton loads 16 bytes at a time if rows are known to be multiples of 16 numbers.
    """
    return round_up(width + 1, 16)


def has_exact_products(x: Tensor) -> bool:
    """Return whether products of tensors like this keep all bits of their factors.

    For ``high``, CUDA rounds them to TF32; for ``medium``, a CPU rounds them to bfloat16.
    """
    precision = torch.get_float32_matmul_precision()
    return x.dtype == torch.float64 or precision == "highest" or (precision == "high" and x.device.type == "cpu")


def has_kernel_of_layers(x: Tensor, backend: Backend) -> bool:
    """Return whether ``linear`` computes layers with weights like this."""
    return backend.kernels and not has_exact_products(x)


def is_fused(activation: Activation, backend: Backend) -> bool:
    """Return whether one kernel propagates the gradient through a layer and the activation before it.

    The gradient then overwrites the activation's value, which saves two fifths of the memory of learning.
    """
    return activation is ELU and backend.kernels


def tape_shapes(widths: Sequence[int], keeps: bool, fused: bool, groups: int, samples: int) -> list[Shape]:
    """Return the shapes of a tape's tensors for layers of these widths.

    These are the outputs, the gradient by the last output, the other gradients unless ``fused``, and ``kept`` if
    ``keeps``.
    """
    hidden = [with_one(width) for width in widths[:-1]]
    columns = [*hidden, widths[-1], widths[-1], *([] if fused else hidden), *(hidden if keeps else [])]
    return [(groups, samples, width) for width in columns]


def make_tape(x: Tensor, tensors: Sequence[Tensor], widths: Sequence[int], fused: bool) -> Tape:
    """Create a tape from a network's input and tensors of ``tape_shapes``."""
    depth, buffers = len(widths), [matrices(t) for t in tensors]
    outputs, d_result, rest = buffers[:depth], buffers[depth], buffers[depth + 1 :]
    grads, kept = (outputs[:-1], rest) if fused else (rest[: depth - 1], rest[depth - 1 :])
    grads = [*grads, d_result]
    return Tape(
        inputs=[matrices(x), *outputs[:-1]],
        outputs=[t[..., :width] for t, width in zip(outputs, widths)],
        tails=[t[..., width:] for t, width in zip(outputs[:-1], widths)],
        grads=[t[..., :width] for t, width in zip(grads, widths)],
        input_grads=grads[:-1],
        kept=kept or [None] * (depth - 1),  # type: ignore[arg-type]
        result=tensors[depth - 1],
        d_result=tensors[depth],
    )


def carve(buffer: Tensor, shapes: Sequence[Shape]) -> list[Tensor]:
    """Return consecutive views of a flat tensor, each beginning at a multiple of 16 elements."""
    views, start = [], 0
    for shape in shapes:
        size = math.prod(shape)
        views.append(buffer[start : start + size].view(shape))
        start += round_up(size, 16)
    return views


def carved_size(shapes: Sequence[Shape]) -> int:
    """Return the number of elements that ``carve`` needs."""
    return sum(round_up(math.prod(shape), 16) for shape in shapes)


def round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


class StackedMLP:
    """Linear layers with an activation between them.

    Biases are a row of the weights, and every layer's input has a column of ones, because on a GPU adding a bias and
    summing its gradient would take as long as the products.

    ``infer`` and ``forward`` use the same products, because they must round alike. A policy that acts with means other
    than those that it learns with unlearns: the divergence between the two grows, and the adaptive learning rate falls
    to its minimum.

    In TF32, both read a transposed copy of the weights (``linear``). Call ``weights_changed`` after any change of the
    weights, unless ``forward`` comes next.

    Args:
        weights: ``(K, in, out)``, first layer to last, including the row of the biases and rows for the zeros.
        activation: the activation after every layer but the last.
    """

    def __init__(self, backend: Backend, weights: Sequence[Tensor], activation: Activation) -> None:
        self.weights, self.activation = [matrices(w) for w in weights], activation
        is_single = len(weights[0]) == 1 and not backend.fixed_order  # a fixed order computes a single group as many
        self._product = product if backend.fixed_order else torch.mm if is_single else torch.bmm
        self._fused = is_fused(activation, backend)
        widths = [w.shape[2] for w in weights[:-1]]
        self._tails = [torch.eye(1, with_one(width) - width).to(weights[0]) for width in widths]  # 1, 0, ...
        # separate bias and weights of a single group; products that round their factors would round biases, too
        self._affine = None
        if is_single and has_exact_products(weights[0]):
            self._affine = [(w[i], w[:i]) for i, w in zip(widths, self.weights[1:])]
        self._transposed: list[Tensor] | None = None
        if has_kernel_of_layers(weights[0], backend):
            self._linear = partial(linear, alike=backend.fixed_order)
            self._transposed = [torch.empty_like(w.mT, memory_format=torch.contiguous_format) for w in self.weights]
        self._tails_last = all(self._is_kept(tail) for tail in self._tails)

    def _is_kept(self, tail: Tensor) -> bool:
        """Return whether the activation does not change a tail, as for ELU and ReLU."""
        after = tail.clone()
        self.activation.forward(after, None)
        return torch.equal(after, tail)

    def weights_changed(self) -> None:
        """Update the transposed copies of the weights, which ``infer`` reads."""
        for weight, copy in zip(self.weights, self._transposed or ()):
            transpose(weight, copy)

    def begin(self, tape: Tape) -> None:
        """Initialize a new tape."""
        tape.d_result.zero_()  # some columns do not belong to a head
        for tail, value in zip(tape.tails, self._tails):
            tail.copy_(value)

    def infer(self, x: Tensor) -> Tensor:
        """Map ``(K, N, in)``, with the 1 and the zeros, to ``(K, N, out)``."""
        if self._affine is not None:
            return self._infer_one(x[0], self._affine).unsqueeze(0)
        x = matrices(x)
        for i, weight in enumerate(self.weights):
            width, hidden = weight.shape[-1], i < len(self._tails)
            out = x.new_empty(*x.shape[:-1], with_one(width) if hidden else width)
            if not self._apply(i, x, out):
                self.activation.forward(out, None)
                out[..., width:] = self._tails[i]
            x = out
        return x if x.dim() == 3 else x.unsqueeze(0)

    def _infer_one(self, x: Tensor, affine: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """Like ``infer`` for a single group, with fewer calls, which dominate the time if groups are small."""
        x = torch.mm(x, self.weights[0])
        for bias, weight in affine:
            self.activation.forward(x, None)
            x = torch.addmm(bias, x, weight)
        return x

    def forward(self, tape: Tape) -> None:
        """Map the tape's first input to its result; call ``begin`` first."""
        self.weights_changed()
        for i in range(len(self.weights)):
            if not self._apply(i, tape.inputs[i], tape.outputs[i]):
                self.activation.forward(tape.inputs[i + 1], tape.kept[i])
                if not self._tails_last:
                    tape.tails[i].copy_(self._tails[i])

    def _apply(self, i: int, x: Tensor, out: Tensor) -> bool:
        """Compute layer i into ``out``, or its first columns; return whether it is complete with its activation."""
        hidden, width = i < len(self._tails), self.weights[i].shape[-1]
        if self._transposed is None:
            self._product(x, self.weights[i], out=out[..., :width])
            return not hidden
        elu = hidden and self.activation is ELU
        self._linear(x, self._transposed[i], out if elu else out[..., :width], elu)
        return elu or not hidden

    def backward(self, tape: Tape, into: Sequence[Tensor]) -> None:
        """Differentiate the result of ``forward(tape)``, from its ``d_result``.

        Args:
            tape: overwritten.
            into: receives the gradients by the weights, in the shapes of ``matrices``.
        """
        for i in reversed(range(len(self.weights))):
            self._product(tape.inputs[i].mT, tape.grads[i], out=into[i])
            if i:
                self._backward_below(i, tape)

    def _backward_below(self, i: int, tape: Tape) -> None:
        """Propagate the gradient through layer i and the activation before it."""
        if self._fused:
            weight = self.weights[i][..., : self.weights[i - 1].shape[-1], :]  # without the bias
            elu_linear_backward(tape.grads[i], weight, tape.outputs[i - 1], tape.grads[i - 1])
            return
        grad = tape.input_grads[i - 1]
        self._product(tape.grads[i], self.weights[i].mT, out=grad)
        self.activation.backward(grad, tape.inputs[i], tape.kept[i - 1])
