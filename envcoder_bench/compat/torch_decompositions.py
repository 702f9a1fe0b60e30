"""torch's decompositions of operators into other operators, which then need no rule to be recorded.

``torch._decomp.decomposition_table`` is private; the public ``torch.export.default_decompositions`` imports torch's
compiler, which takes seconds and is impossible in a jailed process. Without the table these operators are not compiled,
and functions that use them are called. There is no issue of torch that it waits for.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch

from mujoco_batches.compat import warn_once

try:
    from torch._decomp import decomposition_table
except ImportError:
    decomposition_table = {}

# Operators whose decomposition uses nothing but operators with a rule and imports nothing when it runs. Others of
# torch's decompositions import its compiler or sympy, which takes seconds and is impossible in a jailed process.
DECOMPOSED = frozenset(
    (
        "_prelu_kernel", "addmm", "aminmax", "baddbmm", "celu", "count_nonzero", "dot", "frac", "gelu", "hardshrink",
        "hardsigmoid", "hardswish", "hardtanh", "heaviside", "isinf", "leaky_relu", "log_sigmoid_forward",
        "logaddexp", "logit", "logsumexp", "mish", "mse_loss", "nan_to_num", "nansum", "norm", "roll", "silu", "sinc",
        "smooth_l1_loss", "softplus", "std", "std_mean", "threshold",
    )
)  # fmt: skip


def decomposition(func: Any, name: str) -> Callable[..., Any] | None:
    """Return the function that computes operator ``func`` by other operators; None if there is no usable one.

    An in-place operator is replaced by the one that returns a new tensor.
    """
    if func.has_kernel_for_dispatch_key("CompositeImplicitAutograd"):
        return func.decompose
    if name not in DECOMPOSED:
        return None
    if func._schema.is_mutable:
        return getattr(torch.ops.aten, name)
    # without the wrappers that promote types: the operators inside do that, too, and without torch's compiler
    if func not in decomposition_table:
        warn_once("torch._decomp", f"no {func}", "candidate functions that use it are called, which is slower")
        return None
    return inspect.unwrap(decomposition_table[func])
