"""Extension of a complete run by candidates, seeds or iterations, to what one larger run would have given."""

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from envcoder_bench.core.errors import Stopped, UserError, user_input
from envcoder_bench.core.files import digest, write_atomic
from envcoder_bench.core.run_log import run_log
from envcoder_bench.core.shell import display_path, resume_command
from envcoder_bench.core.torch_settings import settings_kept
from envcoder_bench.core.words import join_words
from envcoder_bench.core.yaml_files import to_yaml
from envcoder_bench.results.rows import FAILED_AT_LOAD, SKIPPED, Result, read_results
from envcoder_bench.run.evaluate import go_on
from envcoder_bench.run.folder.checkpoint import Checkpoint, SavedJob, load_job, pack_job
from envcoder_bench.run.folder.run_folder import RunFolder, at_work
from envcoder_bench.run.hooks import Reporter, StopRequest
from envcoder_bench.run.inputs import Candidates, checked_arguments, read_candidates, refuse_unparsed
from envcoder_bench.run.result import RunResult
from envcoder_bench.run.seeds import seed_count
from envcoder_bench.run.spec import CandidateSource, RunConfig
from envcoder_bench.shaping.discovery import refuse_clashes
from envcoder_bench.shaping.kinds import SHAPER_TYPES
from envcoder_bench.shaping.text import defined_kinds
from envcoder_bench.tasks.base import BASELINES, UNTRAINED
from envcoder_bench.trainers.registry import trainer_class

FLAG = "--extend"
log = logging.getLogger(__name__)


@checked_arguments
def extend(
    folder: str | Path,
    candidates: Candidates = None,
    *,
    candidate_idx: str | Sequence[int] | None = None,
    seeds: int | None = None,
    learning_iterations: int | None = None,
    reporter: Reporter | None = None,
    stop: StopRequest | None = None,
    devices: str | None = None,
    ray: str | None = None,
) -> RunResult:
    """Add candidates, seeds or iterations to a complete run.

    On a CPU, results and policies are bitwise those of one larger run. More iterations start from the states at the end
    of the run; if there are none, or if the training depends on its length, its candidates are trained from the
    beginning. Raises UserError if the run cannot be extended, or there is nothing to add; then nothing was changed.

    Args:
        candidates, candidate_idx: as of ``evaluate``; candidates of the run with the same text are left out.
        seeds: number of seeds of the extended run; None: unchanged.
        learning_iterations: number of iterations of the extended run; None: unchanged.
    """
    run = RunFolder.open(Path(folder), FLAG)
    if not run.complete:
        raise UserError(f"{FLAG} {folder}: the run is not complete; first {resume_command(run.path)}")
    reporter, stop = reporter or Reporter(), stop or StopRequest()
    with run_log() as messages, settings_kept(), run.locked(), contextlib.ExitStack() as workers:
        cfg, sources = run.read(trains=True)
        if run.provenance is None:
            raise UserError(f"{FLAG} {run.path}: run.json is missing or damaged: restore a copy of it")
        # everything is checked before anything is changed
        new = _new_sources(sources, candidates, candidate_idx)
        _refuse_left_out(run, cfg, sources, new)
        extension = _plan(run, cfg, sources, new, seeds, learning_iterations)
        spec = run.resolve(cfg, sources)
        spec = replace(spec.changed(**extension.more), sources=tuple(extension.sources))
        if devices is not None or ray is not None:
            spec = spec.changed(devices=devices, ray=ray)

        def begin() -> None:
            _begin(run, extension)
            messages.open(run.path)
            log.info("%s is extended: %s", display_path(run.path), extension.what)

        # a run that was not begun is not named in the message: it is complete as before
        try:
            with at_work(run):
                return go_on(workers, run, spec, reporter, stop, extension.saved, begin)
        except Stopped as stopped:
            if messages.path is not None:
                raise
            raise Stopped(str(stopped), None) from None


@dataclass
class Extension:
    """What an extension changes, before anything is written.

    Attributes:
        config: the new text of config.yaml.
        more: the keys with larger values.
        sources: all candidates, in the order of one larger run.
        new: the candidates that are added.
        saved: the state from which the extended run continues; preparation adds rows to it.
        done: the rows of that state before.
        several: whether policies get the names that they have in a run with several seeds.
        states: by the file of a job's checkpoint, the file of the state that it begins with.
        what: what is added, for the user.
    """

    config: str
    more: dict[str, int]
    sources: list[CandidateSource]
    new: list[CandidateSource]
    saved: Checkpoint
    done: list[Result]
    several: bool
    states: dict[Path, Path] = field(default_factory=dict)
    what: str = ""


def _new_sources(
    sources: Sequence[CandidateSource],
    candidates: Candidates,
    candidate_idx: str | Sequence[int] | None,
) -> list[CandidateSource]:
    """Read the candidates that the run does not have. Raises UserError if one has the name of another one."""
    if candidates is None:
        if candidate_idx is not None:
            raise UserError(f"{FLAG}: --candidate_idx selects from --candidates: give both")
        return []
    before = {source.name: source for source in sources}
    asked = read_candidates("", candidates, candidate_idx)
    refuse_unparsed(asked)
    new = [source for source in asked if source.name not in before]
    for source in asked:
        if source.name in before and source.source != before[source.name].source:
            raise UserError(f"{source.file}: the run has another candidate named {source.name}: rename the file")
    files = [Path(f"{name}.py") for name in before if name not in BASELINES]
    with user_input():
        refuse_clashes([*files, *(Path(f"{source.name}.py") for source in new)])
    return new


def _refuse_left_out(
    run: RunFolder, cfg: RunConfig, sources: Sequence[CandidateSource], new: Sequence[CandidateSource]
) -> None:
    """Raise UserError if the run's shaper_types leave out a function that only new candidates define."""
    if cfg.shaper_types is None:
        return
    before = (defined_kinds(source.source) for source in sources if source.name not in BASELINES)
    trained = set(cfg.shaper_types).union(*before)
    for source in new:
        left_out = [name for name in SHAPER_TYPES if name in defined_kinds(source.source) - trained]
        if left_out:
            raise UserError(
                f"{source.file}: {join_words(left_out)} would not be trained, because {run.path} has shaper_types"
                f" {', '.join(cfg.shaper_types)}: begin a new run, or take it out of the file"
            )


def _plan(
    run: RunFolder,
    cfg: RunConfig,
    sources: Sequence[CandidateSource],
    new: list[CandidateSource],
    seeds: int | None,
    iterations: int | None,
) -> Extension:
    """Check what is to be added, and return the state from which the extended run continues."""
    # what is asked for must be more than the run has
    if cfg.race.enabled:
        raise UserError(
            f"{FLAG} {run.path}: the run is a race, in which other candidates decide who is stopped: begin a new run"
        )
    # what is asked for
    wanted = {"seeds": seeds, "learning_iterations": iterations}
    for key, value in wanted.items():
        if value is not None and type(value) is not int:
            raise UserError(f"{FLAG}: --{key} must be a whole number, the total of the extended run, got {value}")
        if value is not None and value < getattr(cfg, key):
            raise UserError(
                f"--{key} {value}: the run has {getattr(cfg, key)}, and can only be extended: give a larger number"
            )
    more = {key: value for key, value in wanted.items() if value is not None and value > getattr(cfg, key)}
    if not more and not new:
        raise UserError(
            f"{FLAG} {run.path}: there is nothing to add: give --candidates with new files, or --seeds or"
            f" --learning_iterations with more than {cfg.seeds} and {cfg.learning_iterations}"
        )
    # the state from which the larger run continues
    rows = _rows(run, cfg, sources)
    summary = _summary(run)
    longer = "learning_iterations" in more
    jobs, states = _states(run, cfg, rows) if longer else ([], {})
    done = [row for row in rows if not longer or not _trains(row)]
    saved = Checkpoint(done, seconds=summary["seconds"], jobs=jobs)  # its waves are counted anew
    saved.needed, saved.peak = summary["needed"], summary["peak"]
    # the config of the larger run
    candidates = [*sources, *new]
    larger = {**cfg.plain(), **more, "candidates": [source.entry() for source in candidates]}
    parts = [f"candidates {', '.join(source.name for source in new)}"] if new else []
    parts += [
        f"{key.replace('_', ' ')} {getattr(cfg, key)} -> {value} of all candidates" for key, value in more.items()
    ]
    several = cfg.seeds == 1 and "seeds" in more
    return Extension(to_yaml(larger), more, candidates, new, saved, list(done), several, states, "; ".join(parts))


def _rows(run: RunFolder, cfg: RunConfig, sources: Sequence[CandidateSource]) -> list[Result]:
    """Return the rows of results.csv. Raises UserError if they are not those of the run.

    The untrained policy has rows only in runs that train the human baseline.
    """
    try:
        rows = read_results(run.results)
    except (OSError, ValueError) as error:
        raise UserError(f"{FLAG} {run.path}: {error}; restore a copy of results.csv") from error
    expected = {(source.name, seed) for source in sources for seed in range(cfg.seed, cfg.seed + seed_count(cfg))}
    trained = [row.key for row in rows if row.candidate != UNTRAINED]
    if len(trained) != len(expected) or set(trained) != expected:
        raise UserError(f"{run.results} is damaged: its rows are not those of the run; restore a copy")
    run.note_changed(run.results)
    return rows


def _trains(row: Result) -> bool:
    """Return whether a row changes with the number of iterations."""
    return row.status not in (FAILED_AT_LOAD, SKIPPED) and row.candidate != UNTRAINED


def _summary(run: RunFolder) -> dict[str, Any]:
    """Return the facts of summary.json that continue, or 0 if it is damaged."""
    try:
        content = run.recorded
        memory = content["memory"]
        return {
            "seconds": float(content["wall_time"]),
            "needed": int(memory["estimated_gib"] * 2**30),
            "peak": int(memory["measured_gib"] * 2**30),
        }
    except (ValueError, KeyError, TypeError):
        return {"seconds": 0.0, "needed": 0, "peak": 0}


def _states(run: RunFolder, cfg: RunConfig, rows: Sequence[Result]) -> tuple[list[SavedJob], dict[Path, Path]]:
    """Return a job for each wave whose state was kept, and the files of the states by those of the jobs."""
    params = cfg.params
    if trainer_class(params).depends_on_length(params):
        log.info("the training depends on its number of iterations: all candidates are trained from the beginning")
        return [], {}
    # a wave's state counts only as a whole: its groups go on together
    left = {row.key for row in rows if _trains(row)}
    jobs, states = [], {}
    for path in sorted(run.states.glob("*.pt")):
        job, _ = load_job(path)
        run.refuse_changed(path)
        if left.issuperset(job.groups):
            left -= set(job.groups)
            job.file, job.rows = run.job(path.stem), {}
            jobs.append(job)
            states[job.file] = path
    if left:
        names = ", ".join(sorted({name for name, _ in left}))
        log.info("trained from the beginning, because they have no saved state to continue from: %s", names)
    return jobs, states


def _begin(run: RunFolder, extension: Extension) -> None:
    """Turn the complete run into an unfinished larger one. After a crash at any place it is either of the two."""
    assert run.provenance is not None
    texts = {run.source(x.name): x.source.encode("utf-8", "surrogateescape") for x in extension.new}
    for file, text in texts.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, text)
    if extension.several:
        _name_policies(run, extension.done)
    for target, source in extension.states.items():
        run.jobs.mkdir(exist_ok=True)
        job, training = load_job(source)
        run.write(target, pack_job(job.groups, {**training, "seconds": 0.0}, {}))  # they are in summary.json
    run.write_checkpoint(replace(extension.saved, results=extension.done))
    run.summary.unlink()  # --resume makes the run complete again, from this checkpoint and the old config
    record = run.provenance
    record.before.append(record.config)
    record.config = extension.config
    record.sources.update({file.relative_to(run.path).as_posix(): digest(text) for file, text in texts.items()})
    record.write(run.run)
    write_atomic(run.config, extension.config)


def _name_policies(run: RunFolder, rows: Sequence[Result]) -> None:
    """Copy policy.pth of a run with one seed to the name that policies have in a run with several."""
    for row in rows:
        home = run.candidate(row.candidate)
        named = home / f"policy_seed_{row.seed}.pth"
        if row.measured and not named.exists() and (home / "policy.pth").is_file():
            write_atomic(named, (home / "policy.pth").read_bytes())
