"""How much rounding changes a program's numbers: its results in float32 against those in float64."""

from collections.abc import Mapping

import torch
from torch import Tensor

from envcoder_bench.compile.interpret import Interpreter
from envcoder_bench.compile.program import ACTION, Program
from envcoder_bench.env.stages import Call

# A kernel and torch compute in different orders, so that their numbers can be farther from each other than from the
# exact ones: inverses of matrices, differences of large numbers
ORDERS = 10.0


def rounding(call: Call, program: Program, state: Mapping[str, Tensor], n: int, step: Tensor) -> Tensor:
    """Return how far apart a group's numbers may be, relative to their columns' sizes, because of rounding: ``(n,)``.

    Args:
        state: tensors that the program reads: all groups' rows, or group 0's, followed by the others' in memory.
        n: number of environments of a group; ``step`` is that of the random numbers.
    """
    read = {name: _rows(state[name], call.group, n) for name in program.state_names()}
    action = read[ACTION] if ACTION in read else torch.zeros(n, 1, device=step.device)
    with call.random_numbers(step):
        usual = Interpreter(program)(read, action)
    with call.random_numbers(step):
        precise = Interpreter(program, precise=True)(read, action)
    worst = torch.zeros(n, dtype=torch.float64, device=action.device)
    for name, x in precise.items():
        if x.is_floating_point():
            errors = (usual[name] - x).abs() / column_sizes(x.unsqueeze(0))[0].clamp_min(1e-30)
            worst = torch.maximum(worst, errors.nan_to_num(0.0, 0.0).amax(dim=1))
    return ORDERS * worst


def column_sizes(x: Tensor) -> Tensor:
    """Return the scale on which numbers ``(groups, n, columns)`` are compared.

    That is the number, or a tenth of its column's median if that is larger: a torque of 0.01 N m among torques of
    40 N m is a difference of large numbers.
    """
    size = x.abs().nan_to_num(0.0, 0.0, 0.0)
    return torch.maximum(size, 0.1 * size.median(dim=1, keepdim=True).values)


def _rows(x: Tensor, group: int, n: int) -> Tensor:
    """Return a group's rows, which can be beyond the end of the tensor."""
    stride = x.stride(0)
    flat = x.as_strided((n, x[0].numel()), (stride, 1), x.storage_offset() + group * n * stride)
    return flat.reshape(n, *x.shape[1:])
