"""torch's decompositions of operators, so that operators without a rule can be recorded.

``torch._decomp.decomposition_table`` is private; the public ``torch.export.default_decompositions`` imports torch's
compiler, which takes seconds and is impossible in a jailed process. Without the table these operators are not compiled,
and functions that use them are called. No issue of torch asks for a public name.
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

# operators whose decomposition uses only operators with a rule, and imports nothing when it runs. Other decompositions
# import torch's compiler or sympy, which takes seconds and is impossible in a jailed process
DECOMPOSED = frozenset(
    (
        "_prelu_kernel", "addmm", "aminmax", "baddbmm", "celu", "count_nonzero", "dot", "frac", "gelu", "hardshrink",
        "hardsigmoid", "hardswish", "hardtanh", "heaviside", "isinf", "leaky_relu", "log_sigmoid_forward",
        "logaddexp", "logit", "logsumexp", "mish", "mse_loss", "nan_to_num", "nansum", "norm", "roll", "silu", "sinc",
        "smooth_l1_loss", "softplus", "std", "std_mean", "threshold",
    )
)  # fmt: skip


def decomposition(func: Any, name: str) -> Callable[..., Any] | None:
    """Return the function that computes operator ``func`` by other operators; None without a usable function.

    For an in-place operator, it is the operator that returns a new tensor.
    """
    if func.has_kernel_for_dispatch_key("CompositeImplicitAutograd"):
        return func.decompose
    if name not in DECOMPOSED:
        return None
    if func._schema.is_mutable:
        return getattr(torch.ops.aten, name)
    # unwrap the promotion of types, which needs torch's compiler: the operators inside promote types, too
    if func not in decomposition_table:
        warn_once("torch._decomp", f"no {func}", "candidate functions that use it are called, which is slower")
        return None
    return inspect.unwrap(decomposition_table[func])
