"""What the jail makes of untrusted files: candidates without code, or what is wrong with them."""

from __future__ import annotations

import hashlib
import os
import zlib
from pathlib import Path
from typing import Mapping, Sequence, Tuple, Union

import torch
from torch import Tensor

from envcoder_bench.compile.cache import own_code
from envcoder_bench.core.folders import cache_folder
from envcoder_bench.jail import wire
from envcoder_bench.jail.client import Answer, Failure, JailClient
from envcoder_bench.jail.confine import Limits
from envcoder_bench.jail.rebuild import Contract, rebuild
from envcoder_bench.jail.syntax import MAX_CHARACTERS
from envcoder_bench.shaping.contract import Candidate, CandidateError
from envcoder_bench.shaping.text import misleading, unreadable
from envcoder_bench.tasks.contract import AnyTask

JailResult = Union[Candidate, CandidateError]
Source = Tuple[str, str, str]  # name, file (for messages) and text


def judge(
    sources: Sequence[Source],
    task: AnyTask,
    state: Mapping[str, Tensor],
    baseline: str,
    action_dim: int,
    shaper_types: Sequence[str] | None = None,
    seed: int = 0,
    limits: Limits | None = None,
    scan: bool = True,
    sizes: Sequence[int] = (),
) -> dict[str, JailResult]:
    """Have files read, loaded, checked and traced in the jail.

    An answer that was a candidate is kept on disk by content, and checked again whenever it is used.

    Args:
        state: a real state of the task, ``(n, ...)`` tensors, as functions see it.
        baseline: the text of the file that fills in for absent functions; ``action_dim``: the width of its action.
        shaper_types, seed, limits, scan, sizes: as ``JailClient`` has them.

    Returns:
        By name, candidates whose functions are programs, or the faults of those that are none.

    Raises:
        UserError: the jail cannot be started.
    """
    contract = Contract.of(task, state, action_dim, shaper_types)
    asked = (baseline, shaper_types, seed, scan, limits, list(sizes))
    context = repr((own_code(), torch.__version__, _facts(task, state), asked))
    judged: dict[str, JailResult] = {}
    left: list[Source] = []
    for name, file, source in sources:
        if len(source) > MAX_CHARACTERS:
            judged[name] = CandidateError(f"has more than {MAX_CHARACTERS} characters", file)
            continue
        fault = unreadable(source) or misleading(source)
        if fault is not None:
            judged[name] = CandidateError(fault.message, file, fault.line)
            continue
        kept = _load(context, source)
        try:
            judged[name] = rebuild(kept, name, file, source, contract)
        except CandidateError:  # absent, or damaged
            left.append((name, file, source))
    if left:
        with JailClient(task, state, baseline, shaper_types, seed, limits, scan, sizes) as jail:
            for place, answer in jail.answers([source for _, _, source in left]):
                name, file, source = left[place]
                judged[name] = _result(answer, name, file, source, contract)
                if isinstance(answer, bytes) and isinstance(judged[name], Candidate):
                    _save(context, source, answer)
    return {name: judged[name] for name, _, _ in sources}


def _result(answer: Answer, name: str, file: str, source: str, contract: Contract) -> JailResult:
    if isinstance(answer, Failure):
        return CandidateError(answer.reason, file)
    try:
        return rebuild(answer, name, file, source, contract)
    except CandidateError as error:  # told anew, because the frames of its traceback keep the answer
        return CandidateError(error.message, error.file, error.line, error.function)


def _facts(task: AnyTask, state: Mapping[str, Tensor]) -> object:
    """What answers depend on; not the numbers of the state, on which functions are tried again in the trainer."""
    facts = (task.num_dofs, task.default_action_dim, task.goal_keys, task.object_keys)
    shapes = sorted((key, tuple(x.shape), str(x.dtype)) for key, x in state.items())
    return facts, shapes, sorted((key, str(x.dtype), x.tolist()) for key, x in task.constants.items())


def _path(context: str, source: str) -> Path:
    key = hashlib.sha256(repr((context, source)).encode("utf-8", "surrogateescape")).hexdigest()
    return cache_folder() / "jail" / f"{key}.z"


def _load(context: str, source: str) -> bytes:
    """An answer that was kept; empty if there is none."""
    try:
        unpacker = zlib.decompressobj()
        return unpacker.decompress(_path(context, source).read_bytes(), wire.MAX_ANSWER + 5)
    except (OSError, zlib.error):
        return b""


def _save(context: str, source: str, answer: bytes) -> None:
    path = _path(context, source)
    scratch = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_bytes(zlib.compress(answer, 1))
        os.replace(scratch, path)
    except OSError:
        pass
