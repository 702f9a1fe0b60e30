"""Examine untrusted files in the jail: return candidates with programs in place of code, or errors."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from envcoder_bench.compile.cache import own_code, read_packed, write_packed
from envcoder_bench.core.folders import cache_folder
from envcoder_bench.jail import wire
from envcoder_bench.jail.client import Answer, Failure, JailClient
from envcoder_bench.jail.confine import Limits
from envcoder_bench.jail.rebuild import Contract, rebuild
from envcoder_bench.jail.wire import MAX_CHARACTERS
from envcoder_bench.shaping.contract import Candidate, CandidateError
from envcoder_bench.shaping.text import misleading, unreadable
from envcoder_bench.tasks.contract import AnyTask

JailResult = Candidate | CandidateError
Source = tuple[str, str, str]  # name, file (for messages) and text


def examine(
    sources: Sequence[Source],
    task: AnyTask,
    state: Mapping[str, Tensor],
    baseline: str,
    action_dim: int,
    shaper_types: Sequence[str] | None = None,
    seed: int = 0,
    limits: Limits | None = None,
    sizes: Sequence[int] = (),
) -> dict[str, JailResult]:
    """Load, check and trace files in the jail.

    Answers that describe candidates are cached on disk by content, and validated again whenever they are used.

    Args:
        state: a real state of the task, ``(n, ...)`` tensors, as functions see it.
        baseline: source of the baseline that fills in missing functions.
        action_dim: width of the baseline's action.
        shaper_types, seed, limits, sizes: see ``JailClient``.

    Returns:
        By name, candidates whose functions are programs, or the errors of the others.

    Raises:
        UserError: if the jail cannot be started.
    """
    contract = Contract.of(task, state, action_dim, shaper_types)
    arguments = (baseline, shaper_types, seed, limits, list(sizes))
    context = repr((own_code(), torch.__version__, _task_key(task, state), arguments))
    results: dict[str, JailResult] = {}
    uncached: list[Source] = []
    for name, file, source in sources:
        if len(source) > MAX_CHARACTERS:
            results[name] = CandidateError(f"has more than {MAX_CHARACTERS} characters", file)
            continue
        fault = unreadable(source) or misleading(source)
        if fault is not None:
            results[name] = CandidateError(fault.message, file, fault.line)
            continue
        try:
            answer = read_packed(_path(context, source), wire.MAX_ANSWER + 5)
            results[name] = rebuild(answer, name, file, source, contract)
        except CandidateError:  # missing or damaged
            uncached.append((name, file, source))
    if uncached:
        with JailClient(task, state, baseline, shaper_types, seed, limits, sizes) as jail:
            for index, answer in jail.answers([source for _, _, source in uncached]):
                name, file, source = uncached[index]
                results[name] = _result(answer, name, file, source, contract)
                if isinstance(answer, bytes) and isinstance(results[name], Candidate):
                    write_packed(_path(context, source), answer)
    return {name: results[name] for name, _, _ in sources}


def _result(answer: Answer, name: str, file: str, source: str, contract: Contract) -> JailResult:
    if isinstance(answer, Failure):
        return CandidateError(answer.reason, file)
    try:
        return rebuild(answer, name, file, source, contract)
    except CandidateError as error:  # a new one, because the traceback's frames would keep the answer in memory
        return CandidateError(error.message, error.file, error.line, error.function)


def _task_key(task: AnyTask, state: Mapping[str, Tensor]) -> object:
    """Return the task's part of the cache key; without the state's values, on which the trainer checks again."""
    properties = (task.num_dofs, task.default_action_dim, task.goal_keys, task.object_keys)
    shapes = sorted((key, tuple(x.shape), str(x.dtype)) for key, x in state.items())
    return properties, shapes, sorted((key, str(x.dtype), x.tolist()) for key, x in task.constants.items())


def _path(context: str, source: str) -> Path:
    key = hashlib.sha256(repr((context, source)).encode("utf-8", "surrogateescape")).hexdigest()
    return cache_folder() / "jail" / f"{key}.z"
