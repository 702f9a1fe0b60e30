"""Running and resuming a run: candidates in, ranked results out."""

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from envcoder_bench.core.errors import UserError, user_input
from envcoder_bench.core.files import refuse_taken, stamped_folder
from envcoder_bench.core.run_log import run_log
from envcoder_bench.core.torch_settings import ALONE, settings_kept
from envcoder_bench.core.words import counted
from envcoder_bench.run.config import find_task
from envcoder_bench.run.config_checks import check_race, check_task, check_training, check_values
from envcoder_bench.run.folder import results
from envcoder_bench.run.folder.checkpoint import Checkpoint
from envcoder_bench.run.folder.run_folder import RunFolder, at_work, stoppable
from envcoder_bench.run.folder.tracking import check_tracking
from envcoder_bench.run.hooks import Reporter, StopRequest
from envcoder_bench.run.inputs import (
    Candidates,
    checked_arguments,
    described,
    pick_device,
    read_candidates,
    with_candidates,
)
from envcoder_bench.run.prepare.forecast import run_line
from envcoder_bench.run.prepare.plan import Plan
from envcoder_bench.run.prepare.variants import Asked, with_variants
from envcoder_bench.run.result import RunResult, finished
from envcoder_bench.run.seeds import Load, check_chosen, most_seeds, run_seeds, seed_count, settle_seeds
from envcoder_bench.run.spec import RunConfig, RunSpec
from envcoder_bench.run.train.executor import Executor
from envcoder_bench.run.workers import start
from envcoder_bench.run.workers.head import Head
from envcoder_bench.run.workers.start import check
from envcoder_bench.run.workers.worker import configure_torch
from envcoder_bench.shaping.discovery import refuse_clashes
from envcoder_bench.tasks.base import BASELINES, UNTRAINED
from envcoder_bench.tasks.spec import TaskSpec
from envcoder_bench.trainers.base import Widths

log = logging.getLogger(__name__)


def evaluate(
    task: str | TaskSpec,
    candidates: Candidates = None,
    *,
    overrides: Sequence[str] = (),
    candidate_idx: str | Sequence[int] | None = None,
    num_envs: int | None = None,
    variants: Asked | None = None,
    output_dir: str | Path | None = None,
    reporter: Reporter | None = None,
    stop: StopRequest | None = None,
) -> RunResult:
    """Train a policy for each candidate, and rank the candidates.

    The arguments, and what it raises, are those of ``envcoder_bench.evaluate``, with all settings as ``overrides``; a
    run that Ctrl-C stopped while a wave trained is returned.
    """
    task = find_task(task)
    asked_path = None if output_dir is None else Path(output_dir)
    with user_input():
        refuse_taken((asked_path or stamped_folder("runs", task.name)).absolute())  # first: the rest takes a while
    reporter, stop = reporter or Reporter(), stop or StopRequest()
    with run_log() as messages, settings_kept(), contextlib.ExitStack() as workers:
        with stoppable(None), ALONE:
            spec = _asked(task, overrides, candidates, candidate_idx, num_envs, variants)
            most = most_seeds(spec.config, shared_total=num_envs is not None)
            head = workers.enter_context(start.workers(spec, len(spec.sources) * most))
            saved = Checkpoint()
            spec, plan = plan_remaining(spec, saved, head, num_envs is not None)
            path = (asked_path or stamped_folder("runs", task.name)).absolute()
            folder = RunFolder.create(path, spec, head.device_names)
        messages.open(folder.path)
        with at_work(folder), folder.locked():
            reporter.run_began(folder.path)
            return Executor(folder, spec, saved, head, reporter, stop).run(plan)


@checked_arguments  # its flags come as keywords
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
        spec: its description.
        saved: the state to resume from; None for the run's checkpoint.
        begin: called before the first file is written, when everything has been checked.
    """
    with ALONE:
        with user_input():
            cfg = pick_device(spec.config)  # the machine may be another one
        spec = replace(spec, config=cfg)
        _say_notes(run)
        configure_torch(cfg)
        saved = saved or run.load_checkpoint() or Checkpoint()
        with user_input(run.config):  # keys that may be changed have new values
            check_values(cfg)
            check_chosen(cfg)
            check_task(spec.task, cfg.task)
            check_training(spec)
            check_race(spec)
            check_tracking(cfg)
        run.try_code(spec)
        left = max(1, len(spec.sources) * seed_count(cfg) - sum(name != UNTRAINED for name, _ in saved.done))
        with user_input(run.config):
            head = workers.enter_context(start.workers(spec, left))
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
    spec = described(task, overrides)
    of_baseline = variants is not None and candidates is None and candidate_idx is None
    sources = [] if of_baseline else read_candidates(task.name, candidates, candidate_idx)
    if variants is not None:
        sources = with_variants(spec, sources, variants)
        with user_input():
            refuse_clashes([Path(f"{source.name}.py") for source in sources])
    spec = with_candidates(spec, sources, num_envs)
    configure_torch(spec.config)
    return spec


def _say_notes(folder: RunFolder) -> None:
    for note in folder.notes:
        log.warning("%s: %s", folder.path, note)


# what is left to train


def plan_remaining(spec: RunSpec, saved: Checkpoint, head: Head, shared_total: bool = False) -> tuple[RunSpec, Plan]:
    """Load the candidates that are not done, and plan their waves: interrupted ones unchanged, the others anew.

    Candidates that cannot be evaluated are added to the saved results. In the run that is returned ``seeds=auto`` is
    replaced by a number; ``shared_total`` is as of ``settle_seeds``.
    """
    sources, done, planner = spec.sources, saved.done, head.planner
    devices = len(head.workers)
    seeds_line = ""

    def settle(widths: Mapping[str, Widths]) -> RunConfig:
        nonlocal spec, seeds_line

        def load(count: int) -> Load:
            return planner.load(widths, count, devices)

        seeds, seeds_line = settle_seeds(spec.config, load, devices, planner.multiprocessors, shared_total)
        planner.expect_seeds(seeds)
        spec = spec.changed(seeds=seeds)
        return spec.config

    # baselines are checked again, because they fill in for the functions that candidates lack
    seeds = run_seeds(spec.config)
    left = [s for s in sources if s.name in BASELINES or any((s.name, seed) not in done for seed in seeds)]
    groups, failed = check(head, spec.config, left, settle)
    # candidates that cannot be trained
    skipped = [name for name, fault in failed.items() if fault.kind == "nothing asked"]
    names = {source.name for source in sources if source.name not in BASELINES}
    if skipped and names <= set(skipped):
        others = f"; and {counted(len(skipped) - 1, 'more candidate')} of the same kind" if len(skipped) > 1 else ""
        raise UserError(f"there is nothing to evaluate: {failed[skipped[0]]}{others}")
    if skipped:
        asked = ", ".join(spec.config.shaper_types or ())
        log.warning("skipped, because they define none of %s: %s", asked, ", ".join(skipped))
    for name, error in failed.items():
        if name not in skipped:
            log.warning("candidate %s cannot be evaluated: %s", name, error)
    saved.results += [row for row in results.not_trained(spec.config, failed) if row.key not in done]
    if set(failed) - set(BASELINES) - set(skipped) and all(group.name in BASELINES for group in groups):
        groups = []  # there is nothing to rank
    # waves: those that were interrupted keep their groups, because their checkpoints are of these
    by_key = {group.key: group for group in groups}
    waves_begun = [[key for key in wave if key not in done] for wave in saved.waves_begun]
    interrupted = [[by_key[key] for key in wave if key in by_key] for wave in waves_begun]
    if sum(map(len, interrupted)) < sum(map(len, waves_begun)):
        lost = sorted({name for wave in waves_begun for name, _ in wave} & set(failed))
        raise UserError(f"the run cannot be resumed: {', '.join(lost)} can no longer be loaded, see above")
    begun = done.union(*saved.waves_begun)
    plan = planner.plan([group for key, group in by_key.items() if key not in begun], interrupted, devices)
    time = run_line(spec.config, sum(map(len, plan.waves)), planner.physics, devices)
    return spec, replace(plan, seeds=seeds_line, time=time)
