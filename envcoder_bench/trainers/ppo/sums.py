"""Reductions over the samples of each group.

With ``use_deterministic_algorithms`` on CUDA they round alike whatever the number of groups; torch's reductions
are divided among threads by the size of the whole tensor.
"""

import torch
from torch import Tensor

from envcoder_bench.core.torch_settings import is_deterministic
from envcoder_bench.trainers.ppo import triton_kernels


def is_fixed(device: torch.device) -> bool:
    """Return whether a group's bits on this device must not depend on the other groups; on a CPU they never do."""
    return is_deterministic() and device.type == "cuda"


def in_fixed_order(x: Tensor) -> bool:
    """Return whether reductions and products of such tensors must not depend on the number of groups."""
    return is_fixed(x.device) and triton_kernels.usable(x)


def total(x: Tensor, keepdim: bool = False) -> Tensor:
    """Sum ``(K, N, ...)`` over N."""
    if not in_fixed_order(x):
        return x.sum(dim=1, keepdim=keepdim)
    columns = triton_kernels.column_sums(x.unsqueeze(-1) if x.dim() == 2 else x)
    columns = columns.squeeze(-1) if x.dim() == 2 else columns
    return columns.unsqueeze(1) if keepdim else columns


def mean(x: Tensor, keepdim: bool = False) -> Tensor:
    """Average ``(K, N, ...)`` over N."""
    if not in_fixed_order(x):
        return x.mean(dim=1, keepdim=keepdim)
    return total(x, keepdim) / x.shape[1]


def std(x: Tensor, keepdim: bool = False) -> Tensor:
    """Return the standard deviation of ``(K, N)`` over N."""
    if not in_fixed_order(x):
        return x.std(dim=1, keepdim=keepdim)
    return (total((x - mean(x, keepdim=True)).square(), keepdim) / (x.shape[1] - 1)).sqrt()


def norm(x: Tensor) -> Tensor:
    """Return the Euclidean norm of ``(K, P)`` over P."""
    return total(x.square()).sqrt() if in_fixed_order(x) else torch.linalg.vector_norm(x, dim=1)
