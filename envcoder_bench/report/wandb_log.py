"""Weights & Biases: a run for each candidate and seed, and one for the ranking, together in a group.

Trackers must not cost a result: an error of the package is a warning, and the training continues without it.
"""

import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from envcoder_bench.core.errors import UserError, message_line
from envcoder_bench.core.files import digest
from envcoder_bench.results.logs import ScalarLog
from envcoder_bench.results.ranking import Ranked
from envcoder_bench.results.rows import FAILED_AT_LOAD, Result

INSTALL = "pip install 'envcoder-bench[wandb]'"
STEPS = "env_steps"  # the x axis of all charts
RANKING = "ranking"  # type of the W&B run of the ranking; the others are of a candidate or a baseline
_TABLE = ("rank", "candidate", "status", "fitness", "fitness_ci_low", "fitness_ci_high", "vs_human", "episode_length")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WandbSettings:
    """Where runs go.

    Attributes:
        project, entity, tags, mode: as of ``wandb.init``; None for W&B's own defaults.
        folder: the run folder, in whose folder ``wandb`` files are written.
        key: identifies the run folder, so that a resumed run continues its W&B runs.
    """

    project: str
    group: str
    folder: Path
    key: str
    entity: str | None = None
    mode: str | None = None
    tags: tuple[str, ...] = ()


def check_wandb(mode: str | None) -> None:
    """Check that W&B can be used. Raises UserError if the package is missing, or nobody is logged in."""
    try:
        wandb: Any = import_module("wandb")
    except ImportError as error:
        raise UserError(f"--wandb needs the package wandb: {INSTALL}") from error
    mode = mode or os.environ.get("WANDB_MODE") or "online"
    if mode == "online" and not wandb.login(prompt=False):
        raise UserError("--wandb: nobody is logged in: run wandb login, or keep the data here with wandb.mode=offline")


def _allow_open_files() -> None:
    """Raise the process's limit of open files as far as the system allows.

    Each W&B run keeps a file of this process open. Linux's usual limit of 1,024 is too small for a thousand candidates,
    and at the limit the run could not write its own files either.
    """
    try:
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (ImportError, OSError, ValueError):  # Windows has no such limit; macOS refuses an unlimited one
        pass


class WandbLog(ScalarLog):
    """Logs scalars live to a W&B run for each candidate and seed. The package flushes by itself.

    The log files of a run may be closed and opened several times; W&B's runs stay open until ``end``.

    Args:
        about: returns the W&B config of a candidate and seed.
    """

    def __init__(self, settings: WandbSettings, about: Callable[[str, int], Mapping[str, Any]]) -> None:
        self._settings, self._about = settings, about
        self._runs: dict[tuple[str, int], Any] = {}
        self._broken = False
        _allow_open_files()

    def add(self, candidate: str, seed: int, env_steps: int, scalars: Mapping[str, float | None]) -> None:
        """Log scalars at ``env_steps``, without None and NaN."""
        finite = {name: value for name, value in scalars.items() if value is not None and not math.isnan(value)}
        self._guard(lambda: self._run(candidate, seed).log({STEPS: env_steps, **finite}))

    def end(self) -> None:
        """End all W&B runs; a resumed run continues them."""
        runs, self._runs = self._runs, {}
        for run in runs.values():
            self._guard(lambda run=run: run.finish())

    def finish(self, results: Sequence[Result], ranked: Sequence[Ranked]) -> None:
        """Write the results to the W&B runs of this process and to those of candidates that never trained; end them."""
        ranks = {row.candidate: row.rank for row in ranked}
        for row in results:
            if row.key in self._runs or row.status == FAILED_AT_LOAD:
                self._guard(lambda row=row: self._finish(row, ranks.get(row.candidate)))
        self.end()

    def _finish(self, row: Result, rank: int | None) -> None:
        run = self._run(row.candidate, row.seed)
        fields = {key: value for key, value in asdict(row).items() if key not in ("candidate", "seed", "fault")}
        run.summary.update({key: value for key, value in {**fields, "error": row.error}.items() if _is_known(value)})
        if rank is not None:
            run.summary.update({"rank": rank})
        run.finish(exit_code=1 if row.failed else 0)
        del self._runs[row.candidate, row.seed]

    def _run(self, candidate: str, seed: int) -> Any:
        key = candidate, seed
        if key not in self._runs:
            about = self._about(candidate, seed)
            kind = "baseline" if about.get("is_baseline") else "candidate"
            self._runs[key] = _start(self._settings, f"{candidate}, seed {seed}", kind, about)
        return self._runs[key]

    def _guard(self, work: Callable[[], Any]) -> None:
        """Do ``work`` unless W&B has failed before."""
        if self._broken:
            return
        try:
            work()
        except Exception as error:
            self._broken = True
            log.warning("W&B: %s: the run continues without it", message_line(error))


def log_ranking(
    settings: WandbSettings, ranked: Sequence[Ranked], config: Mapping[str, Any], page: Path, videos: Mapping[str, Path]
) -> None:
    """Log the ranking as a table, and page and videos as artifacts, to a W&B run of their own. Raises what W&B does.

    ``videos`` are files by candidate.
    """
    wandb: Any = import_module("wandb")
    run = _start(settings, f"{settings.group}: ranking", RANKING, config)
    cells = ((getattr(row, name) for name in _TABLE) for row in ranked)
    rows = [[value if _is_known(value) else None for value in row] for row in cells]
    run.log({"ranking": wandb.Table(columns=list(_TABLE), data=rows)})
    best = next((row for row in ranked if row.rank is not None and not row.baseline), None)
    if best is not None:
        run.summary.update({"best_candidate": best.candidate, "fitness": best.fitness})
    for kind, files in (("report", [page]), ("videos", list(videos.values()))):
        if files:
            artifact = wandb.Artifact(f"{kind}-{settings.key}", type=kind)
            for path in files:
                artifact.add_file(str(path), name=path.name)
            run.log_artifact(artifact)
    if videos:
        run.log({f"videos/{name}": wandb.Video(str(path), format="mp4") for name, path in videos.items()})
    run.finish()


def _start(settings: WandbSettings, name: str, kind: str, config: Mapping[str, Any]) -> Any:
    wandb: Any = import_module("wandb")
    # a resumed run goes on in the same charts
    run_id = digest(f"{settings.key} {name}")[:16]
    run = wandb.init(
        project=settings.project,
        entity=settings.entity,
        group=settings.group,
        job_type=kind,
        name=name,
        id=run_id,
        dir=str(settings.folder),
        tags=list(settings.tags) or None,
        mode=settings.mode,
        config=dict(config),
        resume="allow",
        reinit="create_new",
        save_code=False,
        settings=wandb.Settings(silent=True, console="off", x_disable_stats=True, disable_git=True, disable_code=True),
    )
    # charts are over env-steps, not over the calls of W&B
    if kind != RANKING:
        run.define_metric(STEPS, hidden=True)
        run.define_metric("*", step_metric=STEPS)
    return run


def _is_known(value: Any) -> bool:
    return value is not None and value != "" and not (isinstance(value, float) and math.isnan(value))
