"""Multilayer perceptrons of all groups in one: stacked weights, and a backward pass written out over given memory."""

from __future__ import annotations

import math
from typing import NamedTuple, Sequence, Tuple

import torch
from torch import Tensor

from envcoder_bench.trainers.ppo.activations import ELU, Activation
from envcoder_bench.trainers.ppo.triton_kernels import elu_linear_backward, usable

Shape = Tuple[int, ...]


class Tape(NamedTuple):
    """What a forward pass leaves to the backward pass, and where that one works: a tensor for each layer.

    All are as ``matrices`` makes them.
    """

    inputs: list[Tensor]  # (K, N, in), with the 1 and the zeros; the first is the network's
    outputs: list[Tensor]  # (K, N, out): hidden ones are columns of the next input
    tails: list[Tensor]  # the rest of the next input, of hidden layers
    grads: list[Tensor]  # (K, N, out): by the outputs
    input_grads: list[Tensor]  # (K, N, in): by the inputs, of all layers but the first
    kept: list[Tensor | None]  # of hidden layers, shaped as the next input: what their activation keeps
    result: Tensor  # (K, N, out), the last output
    d_result: Tensor  # its gradient


def matrices(x: Tensor) -> Tensor:
    """Drop the first dimension if it is 1: a CPU is three times faster at bfloat16 in two dimensions than in three."""
    return x.squeeze(0) if len(x) == 1 else x


def with_one(width: int) -> int:
    """Columns of what a hidden layer gives: its own, a 1 that the next biases are multiplied by, and zeros up to 16.

    Triton loads 16 bytes at a time where it knows that rows are multiples of 16 numbers.
    """
    return round_up(width + 1, 16)


def tape_shapes(widths: Sequence[int], keeps: bool, groups: int, samples: int) -> list[Shape]:
    """Shapes of a tape's tensors for layers of these output widths: outputs, grads, and where ``keeps``, kept."""
    hidden = [with_one(width) for width in widths[:-1]]
    columns = [*hidden, widths[-1], *hidden, widths[-1], *(hidden if keeps else [])]
    return [(groups, samples, width) for width in columns]


def make_tape(x: Tensor, tensors: Sequence[Tensor], widths: Sequence[int]) -> Tape:
    """Make a tape of a network's input and tensors of ``tape_shapes``."""
    depth = len(widths)
    outputs, grads, kept = ([matrices(t) for t in tensors[i : i + depth]] for i in (0, depth, 2 * depth))
    return Tape(
        inputs=[matrices(x), *outputs[:-1]],
        outputs=[t[..., :width] for t, width in zip(outputs, widths)],
        tails=[t[..., width:] for t, width in zip(outputs[:-1], widths)],
        grads=[t[..., :width] for t, width in zip(grads, widths)],
        input_grads=grads[:-1],
        kept=kept or [None] * (depth - 1),  # type: ignore[arg-type]
        result=tensors[depth - 1],
        d_result=tensors[2 * depth - 1],
    )


def carve(buffer: Tensor, shapes: Sequence[Shape]) -> list[Tensor]:
    """Cut tensors one after another out of a flat one, each at a multiple of 16 numbers."""
    views, start = [], 0
    for shape in shapes:
        size = math.prod(shape)
        views.append(buffer[start : start + size].view(shape))
        start += round_up(size, 16)
    return views


def carved_size(shapes: Sequence[Shape]) -> int:
    """How many numbers ``carve`` needs."""
    return sum(round_up(math.prod(shape), 16) for shape in shapes)


def round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


class StackedMLP:
    """Linear layers with an activation between them.

    Biases are a row of the weights, and every layer's input has a column of ones: on a GPU, adding a bias and summing
    its gradient would take as long as the products themselves.

    Args:
        weights: ``(K, in, out)``, first layer to last, with rows for the 1, which is the bias, and for the zeros.
        activation: after every layer but the last.
    """

    def __init__(self, weights: Sequence[Tensor], activation: Activation) -> None:
        self.weights, self.activation = [matrices(w) for w in weights], activation
        self._product = torch.mm if len(weights[0]) == 1 else torch.bmm
        self._fused = activation is ELU and usable(weights[0])
        widths = [w.shape[2] for w in weights[:-1]]
        self._tails = [torch.eye(1, with_one(width) - width).to(weights[0]) for width in widths]  # 1, 0, ...
        # bias and weights apart, of a single group
        self._affine = [(w[i], w[:i]) for i, w in zip(widths, self.weights[1:]) if w.dim() == 2]
        self._tails_last = all(self._is_kept(tail) for tail in self._tails)

    def _is_kept(self, tail: Tensor) -> bool:
        """Whether the activation leaves a tail as it is, as ELU and ReLU do."""
        after = tail.clone()
        self.activation.forward(after, None)
        return torch.equal(after, tail)

    def begin(self, tape: Tape) -> None:
        """Write what later passes over a new tape count on."""
        tape.d_result.zero_()  # some columns are of no head
        for tail, value in zip(tape.tails, self._tails):
            tail.copy_(value)

    def infer(self, x: Tensor) -> Tensor:
        """Map ``(K, N, in)``, with the 1 and the zeros, to ``(K, N, out)``."""
        if len(x) == 1:
            return self._infer_one(x[0]).unsqueeze(0)
        for i, weight in enumerate(self.weights):
            width, hidden = weight.shape[-1], i < len(self._tails)
            out = x.new_empty(*x.shape[:2], with_one(width) if hidden else width)
            torch.bmm(x, weight, out=out[..., :width])
            if hidden:
                self.activation.forward(out, None)
                out[..., width:] = self._tails[i]
            x = out
        return x

    def _infer_one(self, x: Tensor) -> Tensor:
        """As ``infer`` for a single group, with fewer calls: they are what takes the time where groups are small."""
        x = torch.mm(x, self.weights[0])
        for bias, weight in self._affine:
            self.activation.forward(x, None)
            x = torch.addmm(bias, x, weight)
        return x

    def forward(self, tape: Tape) -> None:
        """Map the tape's first input to its result; ``begin`` came before."""
        for i, weight in enumerate(self.weights):
            self._product(tape.inputs[i], weight, out=tape.outputs[i])
            if i < len(self._tails):
                self.activation.forward(tape.inputs[i + 1], tape.kept[i])
                if not self._tails_last:
                    tape.tails[i].copy_(self._tails[i])

    def backward(self, tape: Tape, into: Sequence[Tensor]) -> None:
        """Differentiate what ``forward(tape)`` gave, from its ``d_result``.

        Args:
            tape: used up.
            into: receives the gradients by the weights, as ``matrices`` makes them.
        """
        for i in reversed(range(len(self.weights))):
            self._product(tape.inputs[i].mT, tape.grads[i], out=into[i])
            if i:
                self._backward_below(i, tape)

    def _backward_below(self, i: int, tape: Tape) -> None:
        """Take the gradient through layer i and the activation before it."""
        if self._fused:
            weight = self.weights[i][..., : self.weights[i - 1].shape[-1], :]  # without the bias
            elu_linear_backward(tape.grads[i], weight, tape.outputs[i - 1], tape.grads[i - 1])
            return
        grad = tape.input_grads[i - 1]
        self._product(tape.grads[i], self.weights[i].mT, out=grad)
        self.activation.backward(grad, tape.inputs[i], tape.kept[i - 1])
