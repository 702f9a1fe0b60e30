"""The functions of ``import envcoder_bench``, for scripts and notebooks. They do what the commands do."""

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from envcoder_bench.cli.console import Console
from envcoder_bench.core.errors import Stopped, UserError, user_input
from envcoder_bench.core.shell import resume_call
from envcoder_bench.report.progress import in_notebook
from envcoder_bench.results.stress import Stress
from envcoder_bench.run import evaluate as run
from envcoder_bench.run import extend as extension
from envcoder_bench.run.hooks import Reporter, StopRequest
from envcoder_bench.run.inputs import Candidates, checked_arguments, override_words
from envcoder_bench.run.prepare.variants import Asked
from envcoder_bench.run.result import RunResult
from envcoder_bench.sources.registry import with_task_config
from envcoder_bench.tools import describe as description
from envcoder_bench.tools.check import CheckResult, check_candidates
from envcoder_bench.video.page import write_page


@checked_arguments
def evaluate(
    task: str | os.PathLike[str],
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
    video: int | None = None,
    reporter: Reporter | None = None,
    stop: StopRequest | None = None,
    **settings: Any,
) -> RunResult:
    """Train a policy for each candidate, and rank the candidates.

    It works in any thread, and messages go to the logger ``envcoder_bench``. It prints only a progress bar in Jupyter.
    Runs in several threads train at the same time on a CPU, and one after the other on a CUDA device.

    Args:
        task: a task's name, its folder or ``module:Class``.
        candidates: files or folders; or texts, functions or lists of functions by name, ``{"calm": compute_reward}``;
            default ``user_functions/<task>``.
        shaper_types: functions to take from the candidates; default all that they define.
        overrides: values of keys of cfg/: ``["train.params.config.gamma=0.9"]``, or the same as a dict.
        candidate_idx: positions of the candidates to keep, e.g. ``[0, 2, 5]``.
        num_envs: total number of environments, instead of ``num_envs_per_candidate``.
        terms: whether to train each candidate also with every reward term left out, halved and doubled, and without
            each of its functions. Without ``candidates``, this is done with the human baseline. ``RunResult.terms`` has
            the effects.
        sweep: also train each candidate with other numbers, ``{"effort": [0, 1, 2]}``, see docs/terms.md.
        sweep_points: number of points to take from the grid of a sweep, as a Latin hypercube.
        output_dir: a new folder; default ``runs/<task>_<time>``.
        video: number of the best candidates with a video in report.html; None: do not write this page.
        reporter: receives the progress of the run.
        stop: call it from another thread to stop after the current iteration; ``resume`` continues.
        settings: keys of cfg/config.yaml, such as ``seeds=3, learning_iterations=100, device="cpu"``, and other flags
            of eval-shapers, such as ``race=True``, ``no_baselines=True`` or ``train_config="a.yaml"``.

    Raises:
        UserError: bad input, before anything is written; or the machine ended the run, see MachineError.
        Stopped: Ctrl-C was pressed, and the run ended with a checkpoint. A second Ctrl-C ends the run at once.
    """
    _check_video(video)
    task, settings = _with_config(task, settings)
    with _stop_button():
        result = run.evaluate(
            task,
            candidates,
            overrides=override_words(task, overrides, shaper_types, settings),
            candidate_idx=candidate_idx,
            num_envs=num_envs,
            variants=Asked.of(terms, sweep, sweep_points),
            output_dir=output_dir,
            reporter=_choose_reporter(reporter),
            stop=stop,
        )
    return _finish(result, video)


@checked_arguments
def resume(
    folder: str | Path, *, video: int | None = None, reporter: Reporter | None = None, **where: Any
) -> RunResult:
    """Resume the run in a folder, or read the result of a complete one.

    Args:
        video, reporter: see ``evaluate``.
        where: ``stop``, see ``evaluate``; ``devices`` or ``ray``, which replace both keys of the run's config.

    Raises:
        UserError, Stopped: as ``evaluate``.
    """
    _check_video(video)
    with _stop_button():
        result = run.resume(folder, reporter=_choose_reporter(reporter), **where)
    return _finish(result, video)


@checked_arguments
def extend(
    folder: str | Path,
    candidates: Candidates = None,
    *,
    video: int | None = None,
    reporter: Reporter | None = None,
    **settings: Any,
) -> RunResult:
    """Add candidates, seeds or iterations to a complete run.

    Args:
        folder, candidates, settings: arguments of ``envcoder_bench.run.extend``: ``candidate_idx``, ``seeds``,
            ``learning_iterations``, ``stop``, ``devices`` and ``ray``.
        video, reporter: see ``evaluate``.

    Raises:
        UserError, Stopped: as ``evaluate``.
    """
    _check_video(video)
    with _stop_button():
        result = extension.extend(folder, candidates, reporter=_choose_reporter(reporter), **settings)
    return _finish(result, video)


@checked_arguments
def stress_run(
    run: str | os.PathLike[str] | RunResult,
    draws: int | None = None,
    episodes: int | None = None,
    *,
    seconds: float | None = None,
    candidates: str | Sequence[str] = (),
    device: str = "auto",
    physics: bool = False,
) -> Stress:
    """Play the final policies of a run under disturbances, as ``envcoder-bench stress`` does, and return what is known.

    Candidates that do not have a policy, because they failed, are left out.

    Args:
        run: a run folder, or the result of ``evaluate``.
        draws, episodes, seconds: less than the whole grid and full episodes, for a quick look.
        candidates: names; empty: all that have policies.
        device: auto, cpu or cuda:N.
        physics: whether also to play the episodes without disturbances in other physics.

    Raises:
        UserError: bad input, or a task whose robot cannot be disturbed.
    """
    from envcoder_bench.stress import measure

    if not isinstance(run, (str, os.PathLike, RunResult)):
        raise UserError(f"run must be the folder of a run, or its result, got {run!r}")
    folder = run.folder if isinstance(run, RunResult) else Path(run)
    names = [candidates] if isinstance(candidates, str) else candidates
    return measure.stress_run(folder, measure.Asked(draws, episodes, seconds, names, device, physics)).stress


@checked_arguments
def check(
    task: str | os.PathLike[str],
    candidates: Candidates = None,
    *,
    shaper_types: Sequence[str] | None = None,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    candidate_idx: str | Sequence[int] | None = None,
    num_envs: int | None = None,
    **settings: Any,
) -> CheckResult:
    """Load, check and trace candidates and take one step with them, without training. The arguments are those of
    ``evaluate``; printing the result shows what was found."""
    task, settings = _with_config(task, settings)
    words = override_words(task, overrides, shaper_types, settings)
    return check_candidates(task, words, candidates, candidate_idx, num_envs)


@checked_arguments
def describe(
    task: str | os.PathLike[str], *, overrides: Sequence[str] | Mapping[str, Any] = (), **settings: Any
) -> str:
    """Return the keys of a task's state, the functions that candidates may define, and the fitness, as text to print.
    The arguments are those of ``evaluate``."""
    task, settings = _with_config(task, settings)
    with user_input():
        return description.describe(task, overrides=override_words(task, overrides, None, settings))


def _with_config(task: str | os.PathLike[str], settings: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    task, config = with_task_config(os.fspath(task), settings.get("task_config"))
    return task, {**settings, "task_config": config}


def _choose_reporter(reporter: Reporter | None) -> Reporter | None:
    return Console(names_folder=False) if reporter is None and in_notebook() else reporter


def _check_video(video: int | None) -> None:
    if video is not None and (type(video) is not int or video < 0):
        raise UserError(f"video must be a whole number of at least 0, got {video}")


def _finish(result: RunResult, video: int | None) -> RunResult:
    """Write the page of a complete run, and return the result. Raises Stopped if Ctrl-C stopped the run."""
    if not result.complete and result.stopped_by == signal.SIGINT:
        raise Stopped(f"stopped {result.stopped_at}; {resume_call(result.folder)}", result.folder)
    if result.complete and video is not None:
        write_page(result.folder, video)
    return result


@contextmanager
def _stop_button() -> Iterator[None]:
    """Say how to resume where Ctrl-C ends the block at once."""
    try:
        yield
    except Stopped as stop:
        remedy = "nothing was written" if stop.folder is None else resume_call(stop.folder)
        raise Stopped(f"stopped {stop}".strip() + f"; {remedy}", stop.folder) from None
