"""The choice between torch's operators and Triton's kernels, and of the order of sums.

The choice is made once, when a trainer is constructed. A formula has two forms side by side in its file: operators of
torch, which run anywhere and in float64, and kernels for float32 on CUDA.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from envcoder_bench.core.torch_settings import is_deterministic
from envcoder_bench.core.triton_import import jit, tl, triton, usable_on


@dataclass(frozen=True)
class Backend:
    """The choice of kernels and of the order of sums, with reductions over the samples of each group.

    Attributes:
        kernels: whether kernels replace torch's operators.
        fixed_order: whether a group's sums and products round equally for any number of groups, as with
            ``use_deterministic_algorithms``. cuBLAS and torch's reductions divide the work by the size of the whole
            tensor; on a CPU, where each group has a learner of its own, they do not depend on the other groups.
    """

    kernels: bool
    fixed_order: bool

    @classmethod
    def choose(cls, device: torch.device, dtype: torch.dtype = torch.float32) -> "Backend":
        """Return the backend for tensors of a device and dtype."""
        kernels = usable_on(device, dtype)
        return cls(kernels, kernels and is_deterministic())

    def total(self, x: Tensor, keepdim: bool = False) -> Tensor:
        """Sum ``(K, N, ...)`` over N."""
        if not self.fixed_order:
            return x.sum(dim=1, keepdim=keepdim)
        columns = column_sums(x.unsqueeze(-1) if x.dim() == 2 else x)
        columns = columns.squeeze(-1) if x.dim() == 2 else columns
        return columns.unsqueeze(1) if keepdim else columns

    def mean(self, x: Tensor, keepdim: bool = False) -> Tensor:
        """Average ``(K, N, ...)`` over N."""
        if not self.fixed_order:
            return x.mean(dim=1, keepdim=keepdim)
        return self.total(x, keepdim) / x.shape[1]

    def std(self, x: Tensor, keepdim: bool = False) -> Tensor:
        """Return the standard deviation of ``(K, N)`` over N."""
        if not self.fixed_order:
            return x.std(dim=1, keepdim=keepdim)
        return (self.total((x - self.mean(x, keepdim=True)).square(), keepdim) / (x.shape[1] - 1)).sqrt()

    def norm(self, x: Tensor) -> Tensor:
        """Return the Euclidean norm of ``(K, P)`` over P."""
        return self.total(x.square()).sqrt() if self.fixed_order else torch.linalg.vector_norm(x, dim=1)


@jit
def _column_sums(x, out, num_rows, num_columns, x_k, x_n, x_c, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    k = tl.program_id(1).to(tl.int64)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    rows = tl.arange(0, ROWS)
    x += k * x_k + columns[None, :] * x_c
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(0, num_rows, ROWS):
        at = start + rows
        mask = (at[:, None] < num_rows) & (columns[None, :] < num_columns)
        total += tl.load(x + at[:, None] * x_n, mask=mask, other=0.0)
    tl.store(out + k * num_columns + columns, tl.sum(total, axis=0), mask=columns < num_columns)


def column_sums(x: Tensor) -> Tensor:
    """Sum ``(K, N, D)`` over N, ``(K, D)``."""
    groups, rows, columns = x.shape
    out = x.new_empty(groups, columns)
    block = min(16, triton.next_power_of_2(columns))
    _column_sums[(triton.cdiv(columns, block), groups)](
        x, out, rows, columns, *x.stride(), ROWS=1024 // block, COLUMNS=block, num_warps=4
    )
    return out
