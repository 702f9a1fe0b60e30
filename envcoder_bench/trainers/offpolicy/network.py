"""FlashSAC's network for many groups at once: normalized inputs, residual blocks, weights of unit norm.

``x`` is ``(groups, samples, width)``; every product is one ``bmm``, and every mean is over a group's own samples.
Source of the formulas: rsl_rl_flashsac (Holiday Robotics, BSD-3-Clause), modules/flash_sac_layers.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from envcoder_bench.core.triton_import import usable_on
from envcoder_bench.trainers.offpolicy.batch_norm import EPSILON, BatchNorm, FixedNorm

RMS_NORM_EPS = 1e-6
ALL = slice(None)


class NetworkShape:
    """The tensors of one network, by name, in the order in which they are initialized.

    Args:
        inputs: width of the input.
        units: width of the residual stream.
        heads: width of each linear output.
    """

    def __init__(self, inputs: int, units: int, blocks: int, expansion: int, heads: Mapping[str, int]) -> None:
        wide = units * expansion
        self.inputs, self.units, self.blocks, self.heads = inputs, units, blocks, dict(heads)
        self.products: dict[str, tuple[int, int]] = {"embed": (inputs, units)}  # weights of linear layers, (in, out)
        self.norms = {"norm": inputs}  # widths of batch normalizations
        for k in range(blocks):
            self.products |= {f"{k}.up": (units, wide), f"{k}.down": (wide, units)}
            self.norms |= {f"{k}.norm_up": wide, f"{k}.norm_down": units}
        self.products |= {name: (units, width) for name, width in heads.items()}
        self.parameters: dict[str, tuple[int, ...]] = {
            **self.products,
            **{f"{name}.bias": (1, width) for name, width in heads.items()},
            **{f"{name}.{kind}": (width,) for name, width in self.norms.items() for kind in ("scale", "shift")},
            "post.scale": (units,),
        }
        self.buffers = {f"{name}.{kind}": (width,) for name, width in self.norms.items() for kind in ("mean", "var")}


class Slab:
    """Named tensors of all groups in one ``(groups, size)`` tensor, so that an optimizer has one parameter.

    Attributes:
        flat: ``(groups, size)``.
        views: ``(groups, *shape)`` by name, which share the memory of ``flat``.
    """

    def __init__(self, groups: int, shapes: Mapping[str, tuple[int, ...]], device: torch.device, grad: bool) -> None:
        sizes = [math.prod(shape) for shape in shapes.values()]
        self.flat = torch.zeros(groups, sum(sizes), device=device)
        parts = zip(shapes.items(), self.flat.split(sizes, dim=1))
        self.views = {name: part.unflatten(1, shape).detach() for (name, shape), part in parts}
        if grad:
            for x in self.views.values():
                x.requires_grad_()


class GroupedNetwork:
    """Networks of the same sizes for some groups; inputs and outputs beyond a group's own have weight 0.

    Args:
        shape: of the padded network.
        inputs: ``(groups, padded inputs)`` bool, whether a column is the group's own.
        outputs: own width of each group's heads.
        half: whether hidden layers compute in bfloat16.
        grad: whether it is trained by gradients.
    """

    def __init__(
        self, shape: NetworkShape, inputs: Tensor, outputs: Sequence[int], half: bool, grad: bool = True
    ) -> None:
        self.shape, self._inputs, self._outputs = shape, inputs.float(), list(outputs)
        self._dtype = torch.bfloat16 if half else torch.float32
        groups, device = len(inputs), inputs.device
        self._kernels = usable_on(device, torch.float32)
        self.parameters = Slab(groups, shape.parameters, device, grad)
        self.buffers = Slab(groups, shape.buffers, device, grad=False)
        self._own_width = self._inputs.sum(dim=1, keepdim=True)  # (groups, 1)

    def __call__(self, x: Tensor, training: bool, rows: slice = ALL) -> list[Tensor]:
        """Return the heads' outputs of some ``rows`` of the samples, ``(groups, rows, width)`` each.

        ``training``: normalize by the statistics of all samples and add them to the running ones.
        """
        weights = self.parameters.views
        # observations may be far from 0, so that they are normalized in single precision
        x = torch.bmm(self._normalize("norm", x, training), self._cast(weights["embed"]))
        for k in range(self.shape.blocks):
            y = torch.bmm(x, self._cast(weights[f"{k}.up"]))
            y = self._normalize(f"{k}.norm_up", y, training, relu=True)
            y = torch.bmm(y, self._cast(weights[f"{k}.down"]))
            x = x + self._normalize(f"{k}.norm_down", y, training, relu=True)
        x = x[:, rows].float()
        x = x * torch.rsqrt(x.square().mean(dim=2, keepdim=True) + RMS_NORM_EPS) * weights["post.scale"].unsqueeze(1)
        return [torch.baddbmm(weights[f"{name}.bias"], x, weights[name]) for name in self.shape.heads]

    def _cast(self, weight: Tensor) -> Tensor:
        return weight.to(self._dtype)

    def _normalize(self, name: str, x: Tensor, training: bool, relu: bool = False) -> Tensor:
        scale, shift = (self.parameters.views[f"{name}.{kind}"] for kind in ("scale", "shift"))
        mean, var = (self.buffers.views[f"{name}.{kind}"] for kind in ("mean", "var"))
        if training:
            return BatchNorm.apply(x, scale, shift, mean, var, relu, self._dtype, self._kernels)
        factor = scale.detach() * torch.rsqrt(var + EPSILON)
        offset = shift.detach() - mean * factor
        return FixedNorm.apply(x, factor, offset, relu, self._dtype, self._kernels)

    @torch.no_grad()
    def initialize(self, seeds: Sequence[int], member: int = 0) -> None:
        """Draw the first weights: orthogonal, then of unit norm. Group k's depend on its widths and ``seeds[k]`` alone.

        Groups of equal seeds and widths have equal weights.

        Args:
            member: which of the networks of a seed it is.
        """
        drawn: dict[tuple[int, int, int], dict[str, Tensor]] = {}
        for g, seed in enumerate(seeds):
            key = seed, int(self._own_width[g].item()), self._outputs[g]
            if key not in drawn:
                generator = torch.Generator().manual_seed((seed * 8 + member) % (1 << 63))
                heads = dict.fromkeys(self.shape.heads, (self.shape.units, key[2]))
                shapes = {"embed": (key[1], self.shape.units), **heads}
                drawn[key] = {
                    name: _orthogonal(*shapes.get(name, sizes), generator)
                    for name, sizes in self.shape.products.items()
                }
            for name, weight in drawn[key].items():
                self._set_own(name, self.parameters.views[name][g], g, weight)
        for name in self.shape.norms:
            self.parameters.views[f"{name}.scale"].fill_(1.0)
            self.buffers.views[f"{name}.var"].fill_(1.0)
        self.parameters.views["post.scale"].fill_(1.0)
        self.parameters.views["norm.scale"].mul_(self._inputs)
        self.project()

    @torch.no_grad()
    def project(self) -> None:
        """Bring weights back to their norms: 1 for each output of a product, sqrt(width) for each normalization."""
        weights = self.parameters.views
        for name in self.shape.products:
            weights[name].div_(torch.linalg.vector_norm(weights[name], dim=1, keepdim=True).clamp_min_(1e-8))
        for name, width in self.shape.norms.items():
            scale, shift = weights[f"{name}.scale"], weights[f"{name}.shift"]
            norm = (scale.square() + shift.square()).sum(dim=1, keepdim=True)
            factor = torch.rsqrt(norm + 1e-8) * (self._own_width.sqrt() if name == "norm" else math.sqrt(width))
            scale.mul_(factor)
            shift.mul_(factor)
        scale = weights["post.scale"]
        scale.mul_(math.sqrt(self.shape.units) * torch.rsqrt(scale.square().sum(dim=1, keepdim=True) + 1e-8))

    @torch.no_grad()
    def copy_(self, other: GroupedNetwork) -> None:
        """Take the parameters and running statistics of another network of the same shape."""
        self.parameters.flat.copy_(other.parameters.flat)
        self.buffers.flat.copy_(other.buffers.flat)

    # a group's own part of tensors in the shape of the network

    def own(self, group: int, slab: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return a group's ``slab`` on the CPU, without padding."""
        return {name: self._own(name, x[group], group).detach().cpu().clone() for name, x in slab.items()}

    @torch.no_grad()
    def set_own(self, group: int, slab: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
        """Restore what ``own`` returned. Raises ValueError if it is of other widths."""
        for name, x in slab.items():
            if name not in values or values[name].shape != self._own(name, x[group], group).shape:
                raise ValueError(f"the state belongs to a network of other widths: {name}")
            self._set_own(name, x[group], group, values[name])

    def _own(self, name: str, x: Tensor, group: int) -> Tensor:
        """Return a group's tensor without padding: inputs are its first dimension, a head's outputs its last."""
        if name.removesuffix(".bias") in self.shape.heads:
            return x[..., : self._outputs[group]]
        return x[self._rows(group)] if name == "embed" or name.startswith("norm.") else x

    def _set_own(self, name: str, x: Tensor, group: int, values: Tensor) -> None:
        values = values.to(x.device)
        if name.removesuffix(".bias") in self.shape.heads:
            x[..., : self._outputs[group]] = values
        elif name == "embed" or name.startswith("norm."):
            x[self._rows(group)] = values
        else:
            x.copy_(values)

    def _rows(self, group: int) -> Tensor:
        return self._inputs[group].nonzero().squeeze(1)


def _orthogonal(inputs: int, outputs: int, generator: torch.Generator) -> Tensor:
    """Draw an ``(inputs, outputs)`` matrix as ``nn.init.orthogonal_`` draws a linear layer's weight."""
    return nn.init.orthogonal_(torch.empty(outputs, inputs), generator=generator).T
