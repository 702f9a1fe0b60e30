"""Multilayer perceptrons of all groups in one: stacked weights, and a backward pass written out over given memory."""
from __future__ import annotations

import math
from typing import List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from envcoder_bench.learning.activations import Activation

Shape = Tuple[int, ...]


class Layer(NamedTuple):
    """A stacked linear layer, or the gradients of one."""

    weight: Tensor  # (K, in, out)
    bias: Tensor  # (K, 1, out)


class Tape(NamedTuple):
    """What a forward pass leaves to the backward pass, and where that one works: a tensor for each layer."""

    outputs: List[Tensor]  # (K, N, out)
    grads: List[Tensor]  # (K, N, out): by the outputs
    kept: List[Optional[Tensor]]  # (K, N, out), of hidden layers: what their activation keeps


def tape_shapes(widths: Sequence[int], keeps: bool, groups: int, samples: int) -> List[Shape]:
    """Shapes of a tape's tensors for layers of these output widths: outputs, grads, and where ``keeps``, kept."""
    return [(groups, samples, width) for width in [*widths, *widths, *(widths[:-1] if keeps else [])]]


def make_tape(tensors: Sequence[Tensor], layers: int) -> Tape:
    """Make a tape of tensors of ``tape_shapes``."""
    kept: List[Optional[Tensor]] = list(tensors[2 * layers :]) or [None] * (layers - 1)
    return Tape(list(tensors[:layers]), list(tensors[layers : 2 * layers]), kept)


def carve(memory: Tensor, shapes: Sequence[Shape]) -> List[Tensor]:
    """Cut tensors one after another out of a flat one, each at a multiple of 16 numbers."""
    views, start = [], 0
    for shape in shapes:
        size = math.prod(shape)
        views.append(memory[start : start + size].view(shape))
        start += round_up(size, 16)
    return views


def carved_size(shapes: Sequence[Shape]) -> int:
    """How many numbers ``carve`` needs."""
    return sum(round_up(math.prod(shape), 16) for shape in shapes)


def round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


class StackedMLP:
    """Linear layers with an activation between them.

    Args:
        layers: views of the parameters, first to last.
        activation: after every layer but the last.
    """

    def __init__(self, layers: Sequence[Layer], activation: Activation) -> None:
        self.layers, self.activation = list(layers), activation

    def forward(self, x: Tensor, tape: Optional[Tape] = None) -> Tensor:
        """Map ``(K, N, in)`` to ``(K, N, out)``; after one with a tape, ``backward`` can follow."""
        last = len(self.layers) - 1
        for i, layer in enumerate(self.layers):
            if tape is None:
                x = torch.baddbmm(layer.bias, x, layer.weight)
            else:
                x = torch.baddbmm(layer.bias, x, layer.weight, out=tape.outputs[i])
            if i < last:
                self.activation.forward(x, None if tape is None else tape.kept[i])
        return x

    def backward(self, x: Tensor, tape: Tape, into: Sequence[Layer]) -> None:
        """Differentiate what ``forward(x, tape)`` gave.

        Args:
            x: the input, whose own gradient is not taken.
            tape: of the forward pass; the last of its ``grads`` holds the gradient by the output.
            into: receives the gradients by the parameters.
        """
        for i in reversed(range(len(self.layers))):
            grad, below = tape.grads[i], tape.outputs[i - 1] if i else x
            torch.bmm(below.mT, grad, out=into[i].weight)
            torch.sum(grad, dim=1, keepdim=True, out=into[i].bias)
            if i:
                torch.bmm(grad, self.layers[i].weight.mT, out=tape.grads[i - 1])
                self.activation.backward(tape.grads[i - 1], below, tape.kept[i - 1])
