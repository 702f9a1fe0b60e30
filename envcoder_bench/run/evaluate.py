"""Running and resuming a run: candidates in, ranked results out."""

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from envcoder_bench.core.errors import UserError, user_input
from envcoder_bench.core.files import refuse_taken, stamped_folder
from envcoder_bench.core.run_log import run_log
from envcoder_bench.core.torch_settings import ALONE, settings_kept, use_deterministic_algorithms
from envcoder_bench.run.config_checks import check_race, check_task, check_training, check_values
from envcoder_bench.run.folder.checkpoint import Checkpoint
from envcoder_bench.run.folder.run_folder import RunFolder, at_work, stoppable
from envcoder_bench.run.folder.tracking import check_tracking
from envcoder_bench.run.hooks import Reporter, StopRequest
from envcoder_bench.run.inputs import (
    Candidates,
    checked_arguments,
    override_words,
    pick_device,
    read_candidates,
    resolve,
    with_candidates,
)
from envcoder_bench.run.prepare.remaining import plan_remaining
from envcoder_bench.run.prepare.variants import Asked, with_variants
from envcoder_bench.run.result import RunResult, finished
from envcoder_bench.run.seeds import check_chosen, most_seeds, seed_count
from envcoder_bench.run.spec import RunConfig, RunSpec
from envcoder_bench.run.train.executor import Executor
from envcoder_bench.run.workers import start
from envcoder_bench.shaping.discovery import refuse_clashes
from envcoder_bench.tasks.base import UNTRAINED
from envcoder_bench.tasks.registry import find_spec
from envcoder_bench.tasks.spec import TaskSpec

log = logging.getLogger(__name__)


def evaluate(
    task: str,
    candidates: Candidates = None,
    *,
    shaper_types: Sequence[str] | None = None,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    candidate_idx: str | Sequence[int] | None = None,
    num_envs: int | None = None,
    terms: bool = False,
    sweep: Mapping[str, Sequence[Any]] | Sequence[str] | None = None,
    sweep_points: int | None = None,
    output_dir: str | Path | None = None,
    reporter: Reporter | None = None,
    stop: StopRequest | None = None,
    **settings: Any,
) -> RunResult:
    """Train a policy for each candidate, and rank the candidates.

    The arguments, and what it raises, are those of ``envcoder_bench.evaluate``; a run that Ctrl-C stopped while a wave
    trained is returned.
    """
    given = None if output_dir is None else Path(output_dir)
    with user_input():
        task_spec = find_spec(task)
        name = task_spec.name
        refuse_taken((given or stamped_folder("runs", name)).absolute())  # first, because the rest takes a while
    words = override_words(task, overrides, shaper_types, settings)
    variants = Asked.of(terms, sweep, sweep_points)
    reporter, stop = reporter or Reporter(), stop or StopRequest()
    with run_log() as messages, settings_kept(), contextlib.ExitStack() as workers:
        with stoppable(None), ALONE:
            spec = _asked(task_spec, words, candidates, candidate_idx, num_envs, variants)
            most = most_seeds(spec.config, shared_total=num_envs is not None)
            head = workers.enter_context(start.workers(spec, len(spec.sources) * most))
            saved = Checkpoint()
            spec, plan = plan_remaining(spec, saved, head, num_envs is not None)
            path = (given or stamped_folder("runs", name)).absolute()
            folder = RunFolder.create(path, spec, head.device_names)
        messages.open(folder.path)
        with at_work(folder), folder.locked():
            reporter.run_began(folder.path)
            return Executor(folder, spec, saved, head, reporter, stop).run(plan)


@checked_arguments
def resume(
    folder: str | Path,
    *,
    reporter: Reporter | None = None,
    stop: StopRequest | None = None,
    devices: str | None = None,
    ray: str | None = None,
) -> RunResult:
    """Resume the run in a folder, or read the result of a complete one. See ``evaluate``.

    ``devices`` or ``ray`` replace both keys of the run's config.
    """
    run = RunFolder.open(Path(folder))
    cfg, sources = run.read()
    if run.complete:
        result = finished(run, cfg)
        _say_notes(run)
        return result
    if devices is not None or ray is not None:
        cfg = cfg.model_copy(update={"devices": devices, "ray": ray})
    spec = run.resolve(cfg, sources)
    reporter, stop = reporter or Reporter(), stop or StopRequest()
    with run_log() as messages, settings_kept(), at_work(run), run.locked():
        messages.open(run.path)
        with contextlib.ExitStack() as workers:
            return go_on(workers, run, spec, reporter, stop)


def go_on(
    workers: contextlib.ExitStack,
    run: RunFolder,
    spec: RunSpec,
    reporter: Reporter,
    stop: StopRequest,
    saved: Checkpoint | None = None,
    begin: Callable[[], None] | None = None,
) -> RunResult:
    """Resume a run; closing ``workers`` kills its workers.

    Args:
        saved: the state to resume from; None for the run's checkpoint.
        begin: called before the first file is written, when everything has been checked.
    """
    with ALONE:
        with user_input():
            cfg = pick_device(spec.config)  # the machine may be another one
        spec = replace(spec, config=cfg)
        _say_notes(run)
        _configure_torch(cfg)
        saved = saved or run.load_checkpoint() or Checkpoint()
        try:  # keys that may be changed have new values
            with user_input():
                check_values(cfg)
                check_chosen(cfg)
                check_task(spec.task, cfg.task)
                check_training(spec)
                check_race(spec)
                check_tracking(cfg)
                left = max(1, len(spec.sources) * seed_count(cfg) - sum(name != UNTRAINED for name, _ in saved.done))
                head = workers.enter_context(start.workers(spec, left))
        except UserError as error:
            raise UserError(f"{run.config}: {error}") from error
        spec, plan = plan_remaining(spec, saved, head)
        if begin is not None:
            begin()
    reporter.run_began(run.path)
    return Executor(run, spec, saved, head, reporter, stop, resumed=True).run(plan)


def _asked(
    task: TaskSpec,
    overrides: Sequence[str],
    candidates: Candidates,
    candidate_idx: str | Sequence[int] | None,
    num_envs: int | None,
    variants: Asked | None,
) -> RunSpec:
    """Read and check the inputs of a run, before anything is written."""
    spec = resolve(task, overrides)
    of_baseline = variants is not None and candidates is None and candidate_idx is None
    sources = [] if of_baseline else read_candidates(task.name, candidates, candidate_idx)
    if variants is not None:
        sources = with_variants(spec, sources, variants)
        with user_input():
            refuse_clashes([Path(f"{source.name}.py") for source in sources])
    spec = with_candidates(spec, sources, num_envs)
    check_training(spec)
    check_race(spec)
    _configure_torch(spec.config)
    return spec


def _say_notes(folder: RunFolder) -> None:
    for note in folder.notes:
        log.warning("%s: %s", folder.path, note)


def _configure_torch(cfg: RunConfig) -> None:
    if cfg.device == "cpu":
        torch.set_num_threads(1)  # the threads are used by the simulator and the learners
    elif cfg.deterministic:
        use_deterministic_algorithms()
