"""Operators that torch decomposes into other operators, so that they need no rule."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import decomposition_table

# Operators whose decomposition uses nothing but operators with a rule and imports nothing when it runs. Others of
# torch's decompositions import its compiler or sympy, which takes seconds and is impossible in a jailed process.
DECOMPOSED = frozenset(
    (
        "_prelu_kernel", "addmm", "aminmax", "baddbmm", "celu", "count_nonzero", "frac", "gelu", "hardshrink",
        "hardsigmoid", "hardswish", "hardtanh", "heaviside", "isinf", "leaky_relu", "log_sigmoid_forward",
        "logaddexp", "logit", "logsumexp", "mish", "mse_loss", "nan_to_num", "nansum", "norm", "roll", "silu", "sinc",
        "smooth_l1_loss", "softplus", "std", "std_mean", "threshold",
    )
)  # fmt: skip


def decomposition(func: Any, name: str) -> Callable[..., Any] | None:
    """Return the function that computes operator ``func`` by other operators; None if there is no usable one.

    An in-place operator is replaced by the one that returns a new tensor.
    """
    if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
        return func.decompose
    if name not in DECOMPOSED:
        return None
    if func._schema.is_mutable:
        return getattr(torch.ops.aten, name)
    # without the wrappers that promote types: the operators inside do that, too, and without torch's compiler
    return inspect.unwrap(decomposition_table[func])
