"""Stages whose functions are traced: compile them into kernels, and hold the kernels against the functions."""
from __future__ import annotations

from typing import Dict, List, Sequence

import torch
from torch import Tensor

from envcoder_bench.shaping.components import Components
from envcoder_bench.shaping.stages import Stage
from envcoder_bench.shaping.tracing import kernels
from envcoder_bench.shaping.tracing.program import KINDS, Program
from envcoder_bench.shaping.tracing.source import C_TYPES, Source, write_source

# how far a kernel's numbers may be from torch's, and in how many environments: a threshold may fall on either side
RELATIVE, ABSOLUTE, SHARE = 1e-3, 1e-4, 0.01


def can_compile(program: Program, state: Dict[str, Tensor]) -> bool:
    """Whether a kernel can read all that the program reads: each environment's numbers must lie in a row."""
    return all(state[name][0].is_contiguous() for name in program.state_names())


def compile_stages(
    stages: Sequence[Stage], state: Dict[str, Tensor], components: Components, active: Tensor, step: Tensor
) -> None:
    """Give the stages launches of kernels for their traced calls.

    Args:
        state: what programs read, rows of group 0 first.
        active: ``(num_groups,)`` uint8, groups that the kernels run.
        step: 0-d int64, the step of the random numbers.
    """
    readable = {name: x for name, x in state.items() if x.dtype in KINDS}
    work = []
    for stage in stages:
        outputs = {key or "value": buffer for key, buffer in stage.buffers.items()}
        memory = kernels.Memory(readable, outputs, components.sums, active, step)
        jobs = [
            kernels.Job(call.group, call.seed, _source(program, stage, len(components.names(call.group))))
            for call, program in stage.traced
        ]
        work.append((jobs, memory))
    for stage, launches in zip(stages, kernels.launches(work, stages[0].layout.envs_per_group)):
        stage.launches = launches


def _source(program: Program, stage: Stage, num_components: int) -> Source:
    stores = {}
    for key, buffer in stage.buffers.items():
        stores[key or "value"] = f"O_{{name}}[{{place}}] = ({C_TYPES[KINDS[buffer.dtype]]}){{value}};"
    for i in range(num_components if stage.name == "the reward" else 0):
        stores[f"component{i}"] = f"O_sums[{i} * n] += (float){{value}};"
    key = tuple(stores.items())
    if key not in program.sources:  # groups share programs, and so do training and evaluation
        program.sources[key] = write_source(program, stores)
    return program.sources[key]


def disagreeing(expected: Sequence[Tensor], got: Sequence[Tensor], groups: int, n: int) -> List[int]:
    """The groups in which ``got`` is too far from ``expected``, tensors of each group's n environments.

    Every column counts by itself, so that neither many right numbers nor a neighbour's padding hide a wrong one.
    """
    wrong = []
    for x, y in zip(expected, got):
        x, y = (z.to(torch.float64).reshape(groups, n, -1) for z in (x, y))
        near = (x - y).abs() <= ABSOLUTE + RELATIVE * x.abs()
        same = near | (x == y) | (torch.isnan(x) & torch.isnan(y))
        wrong.append(((~same).to(torch.float64).mean(dim=1) > SHARE).any(dim=1))
    return torch.stack(wrong).any(dim=0).nonzero().flatten().tolist()
