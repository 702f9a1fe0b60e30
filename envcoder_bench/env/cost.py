"""Measurement of the time of one call of each function of a candidate, outside of training."""

import time
from collections.abc import Mapping

import torch
from torch import Tensor

from envcoder_bench.compile.program import ACTION
from envcoder_bench.env.dispatch import Dispatcher
from envcoder_bench.env.input_copies import Inputs
from envcoder_bench.env.stages import Call
from envcoder_bench.shaping.contract import Shaping
from envcoder_bench.shaping.faults import FAULTS
from envcoder_bench.shaping.kinds import STAGES
from envcoder_bench.shaping.shared import shared_settings
from envcoder_bench.shaping.state import bind, own_constants

WARM_UPS = 2  # TorchScript compiles in its first calls
MOST_CALLS = 20


def measure_cost(
    shaping: Shaping,
    state: Mapping[str, Tensor],
    constants: dict[str, Tensor],
    seed: int,
    step: int,
    limit: float,
) -> dict[str, float] | None:
    """Call each function of ``shaping`` eagerly on a copy of ``state`` and return the seconds of its fastest call.

    The training is not affected, except by Python variables of the file.

    Args:
        state: per-environment tensors ``(n, ...)`` of the group, including ``actions``.
        constants: the task's constants.
        seed, step: counters of the functions' random numbers.
        limit: seconds after which a function is not called again.

    Returns:
        Seconds by stage (``reward``, ``command``, ...), without functions whose code is not in this process; None if a
        function raises.
    """
    device = state["actions"].device
    copies = {key: x.clone(memory_format=torch.contiguous_format) for key, x in state.items()}
    inputs = Inputs({**copies, ACTION: copies["actions"].clone(), **own_constants(constants, device)})
    costs: dict[str, float] = {}
    try:
        with torch.no_grad(), shared_settings():
            for stage, kind in STAGES.items():
                function = shaping.functions.get(stage)
                if kind.shaper and function is not None and function.program is None:  # its code is here
                    invoke = bind(function, inputs.state, inputs.action if kind.acts else None)
                    call = Call(0, function, inputs, invoke, _drop, seed, kind.purpose, device)
                    costs[stage] = _fastest(call, step, limit, device)
    except FAULTS:
        return None
    return costs


def ways(dispatch: Dispatcher, group: int) -> dict[str, str]:
    """Return how the group's functions run, by stage: ``compiled``, in a ``CUDA graph``, or from ``Python``."""
    ways_by_stage: dict[str, str] = {}
    for name, stage in dispatch.stages.items():
        for call in stage.calls:
            if call.group == group and call.function is not None:
                captured = stage.replay is not None and dispatch.device.type == "cuda" and call not in stage.eager
                ways_by_stage[name] = "CUDA graph" if captured else "Python"
        for call, _ in stage.traced:
            if call.group == group and call.function is not None:
                ways_by_stage[name] = "compiled"
    return ways_by_stage


def _drop(value: object) -> None:
    """Discard a result."""


def _fastest(call: Call, step: int, limit: float, device: torch.device) -> float:
    """Return the seconds of the fastest of several calls, including launches and kernels."""
    until, fastest = time.perf_counter() + limit, float("inf")
    for k in range(WARM_UPS + MOST_CALLS):
        began = _now(device)
        call(step)
        ended = _now(device)
        fastest = min(fastest, ended - began)
        if k >= WARM_UPS and ended > until:
            break
    return fastest


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
