"""Running and resuming a run: candidates in, ranked results out."""

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig

from envcoder_bench.core.errors import UserError, user_input
from envcoder_bench.core.files import refuse_taken, stamped_folder
from envcoder_bench.core.run_log import run_log
from envcoder_bench.core.torch_settings import ALONE, settings_kept, use_deterministic_algorithms
from envcoder_bench.run.config import with_defaults
from envcoder_bench.run.config_checks import check_race, check_task, check_training, check_values, share_out
from envcoder_bench.run.fitness import read_fitness
from envcoder_bench.run.folder.checkpoint import Checkpoint
from envcoder_bench.run.folder.folder_errors import at_work, stoppable
from envcoder_bench.run.folder.run_folder import CandidateSource, RunFolder
from envcoder_bench.run.folder.tracking import check_tracking
from envcoder_bench.run.hooks import Reporter, StopRequest
from envcoder_bench.run.inputs import Candidates, override_words, pick_device, read_candidates, run_config
from envcoder_bench.run.prepare.remaining import plan_remaining
from envcoder_bench.run.prepare.run_files import baseline_sources
from envcoder_bench.run.prepare.task_place import find_task
from envcoder_bench.run.result import RunResult, finished
from envcoder_bench.run.seeds import check_chosen, most_seeds, seed_count
from envcoder_bench.run.train.executor import Executor
from envcoder_bench.run.workers import start
from envcoder_bench.tasks.base import UNTRAINED
from envcoder_bench.tasks.registry import find_spec

log = logging.getLogger(__name__)


def evaluate(
    task: str,
    candidates: Candidates = None,
    *,
    shaper_types: Sequence[str] | None = None,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    candidate_idx: str | Sequence[int] | None = None,
    num_envs: int | None = None,
    output_dir: str | Path | None = None,
    reporter: Reporter | None = None,
    stop: StopRequest | None = None,
    **settings: Any,
) -> RunResult:
    """Train a policy for each candidate, and rank the candidates.

    Prints nothing and works in any thread; messages go to the logger ``envcoder_bench``. Runs in several threads train
    concurrently on a CPU, and one after the other on a CUDA device.

    Args:
        task: a task's name, its folder or ``module:Class``.
        candidates: files or folders, or texts by name, ``{name: source}``; default ``user_functions/<task>``.
        shaper_types: functions to take from the candidates; default all that they define.
        overrides: for keys of cfg/, ``["train.params.config.gamma=0.9"]`` or ``{"train.params.config.gamma": 0.9}``.
        candidate_idx: positions of the candidates to keep, e.g. ``[0, 2, 5]``.
        num_envs: total number of environments, instead of ``num_envs_per_candidate``.
        output_dir: a new folder; default ``runs/<task>_<time>``.
        reporter: receives the progress of the run.
        stop: call it from another thread to stop after the current iteration; ``resume`` continues.
        settings: keys of cfg/config.yaml, such as ``seeds=3, learning_iterations=100, device="cpu"``. ``seeds="auto"``,
            the default, takes as many seeds as a GPU trains in less than twice the time of one, at most 5.

    Raises:
        UserError: bad input, in which case nothing was written; or the machine ended the run, see MachineError.
        Stopped: KeyboardInterrupt during the preparation of the run.
    """
    given = None if output_dir is None else Path(output_dir)
    with user_input():
        name = find_spec(task).name
        refuse_taken((given or stamped_folder("runs", name)).absolute())  # first, because the rest takes a while
    words = override_words(overrides, shaper_types, settings)
    reporter, stop = reporter or Reporter(), stop or StopRequest()
    with run_log() as messages, settings_kept(), contextlib.ExitStack() as workers:
        with stoppable(None), ALONE:
            cfg, sources, fitness = _asked(task, words, candidates, candidate_idx, num_envs)
            most = most_seeds(cfg, shared_total=num_envs is not None)
            head = workers.enter_context(start.workers(cfg, sources, fitness, len(sources) * most))
            saved = Checkpoint()
            plan = plan_remaining(cfg, sources, saved, head, num_envs is not None)
            path = (given or stamped_folder("runs", name)).absolute()
            folder = RunFolder.create(path, cfg, sources, fitness, head.device_names)
        messages.open(folder.path)
        with at_work(folder), folder.locked():
            reporter.run_began(folder.path)
            return Executor(folder, cfg, sources, saved, head, reporter, stop).run(plan)


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
    cfg = with_defaults(cfg)
    if run.complete:
        result = finished(run, cfg)
        _say_notes(run)
        return result
    if devices is not None or ray is not None:
        cfg.devices, cfg.ray = devices, ray
    find_task(run.config, cfg)
    reporter, stop = reporter or Reporter(), stop or StopRequest()
    with run_log() as messages, settings_kept(), at_work(run), run.locked():
        messages.open(run.path)
        with contextlib.ExitStack() as workers:
            return go_on(workers, run, cfg, sources, reporter, stop)


def go_on(
    workers: contextlib.ExitStack,
    run: RunFolder,
    cfg: DictConfig,
    sources: list[CandidateSource],
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
            pick_device(cfg)  # the machine may be another one
        _say_notes(run)
        _configure_torch(cfg)
        saved = saved or run.load_checkpoint() or Checkpoint()
        fitness = run.read_fitness(cfg)
        try:  # the config of a run of format 1 may have been changed
            with user_input():
                check_values(cfg)
                check_chosen(cfg)
                check_task(cfg)
                check_training(cfg)
                check_race(cfg)
                check_tracking(cfg)
                left = max(1, len(sources) * cfg.seeds - sum(name != UNTRAINED for name, _ in saved.done))
                head = workers.enter_context(start.workers(cfg, sources, fitness, left))
        except UserError as error:
            raise UserError(f"{run.config}: {error}") from error
        plan = plan_remaining(cfg, sources, saved, head)
        if begin is not None:
            begin()
    reporter.run_began(run.path)
    return Executor(run, cfg, sources, saved, head, reporter, stop, resumed=True).run(plan)


def _asked(
    task: str,
    overrides: Sequence[str],
    candidates: Candidates,
    candidate_idx: str | Sequence[int] | None,
    num_envs: int | None,
) -> tuple[DictConfig, list[CandidateSource], CandidateSource | None]:
    """Read and check the inputs of a run, before anything is written."""
    cfg = run_config(task, overrides)
    sources = read_candidates(cfg.task.name, candidates, candidate_idx)
    if cfg.baselines:
        sources = baseline_sources(task) + sources
    if num_envs is not None:
        cfg.num_envs_per_candidate = share_out(num_envs, len(sources) * seed_count(cfg))
    check_training(cfg)
    check_race(cfg)
    _configure_torch(cfg)
    return cfg, sources, read_fitness(cfg)


def _say_notes(folder: RunFolder) -> None:
    for note in folder.notes:
        log.warning("%s: %s", folder.path, note)


def _configure_torch(cfg: DictConfig) -> None:
    if cfg.device == "cpu":
        torch.set_num_threads(1)  # the threads are used by the simulator and the learners
    elif cfg.deterministic:
        use_deterministic_algorithms()
