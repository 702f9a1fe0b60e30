"""The folder of a run: its config, its state and its results.

::

    config.yaml          the whole config of the run; --resume reads it
    run.json             versions, device, config and digests of the sources when it began; digests of what it wrote
    run.log              all messages of the run
    results.csv          a row per candidate and seed
    summary.json         the ranking
    curves.csv           learning curves
    components.csv       learning curves of the rewards' components
    points.csv           at evaluations: fitness, and mean, min and max of the rewards' components
    episodes.csv         the fitness of every episode of the final evaluation, and of those that a race compares;
                         with evaluation.record=true of all
    step_fitness.csv     where in the episodes of the final evaluation the fitness comes from
    trajectories.npz     states of the baselines' and the untrained policy's episodes, by which rewards are judged
    terms.csv            with --terms or --sweep: the effect of each change; of a sweep also sweep_NAME.png, a picture
    stress.csv           by envcoder-bench stress: a row per policy and disturbance; stress.json has how it was measured
    report.html          the page of the run, by eval-shapers
    videos/              an mp4 file for each candidate on the page, and the recorded states
    tensorboard/         scalars per candidate and seed
    fitness.py           with --fitness: a copy of the file
    variants.json        with --terms or --sweep: which candidates are variants, of which others, and in what
    candidates/<name>/   source.py, policy.pth (in rl_games' format); exports beside them
    profile/             with --profile: breakdown.json
    states/              the state of training at the end of each wave, from which --extend trains on
    checkpoint.pth       present while the run is unfinished
    jobs/                likewise, with several devices: a checkpoint for each wave in training; in a race: the states
                         of the candidates that wait at a rung
    .lock                held by the process that executes the run
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from envcoder_bench.core.errors import MachineError, NoWorker, Stopped, UnknownKey, UserError, near_matches, user_input
from envcoder_bench.core.files import (
    LOCK,
    digest,
    disk_trouble,
    file_digest,
    locked,
    read_json,
    refuse_taken,
    write_atomic,
)
from envcoder_bench.core.folders import RUN, other_kind
from envcoder_bench.core.settings import Settings
from envcoder_bench.core.yaml_files import to_yaml
from envcoder_bench.results.logs import COMPONENTS, CURVES, EPISODES, POINTS, STEP_FITNESS, TENSORBOARD
from envcoder_bench.run.folder import checkpoint
from envcoder_bench.run.folder.checkpoint import Checkpoint, GroupKey
from envcoder_bench.run.folder.provenance import Provenance, read_config, read_provenance
from envcoder_bench.run.spec import CandidateSource, RunConfig, RunSpec
from envcoder_bench.run.workers.jobs import Job
from envcoder_bench.shaping.variants import Variant, pack_variants, read_variants
from envcoder_bench.sources.registry import file_of

FITNESS_NAME = "(fitness)"  # name of the fitness file as a source, which is not a valid candidate name
_BYTES = "surrogateescape"  # keeps bytes of a candidate file that are not UTF-8


class RunFolder:
    """Paths, reading and atomic writing of a run's folder.

    Attributes:
        notes: messages for the user about the folder's state, one line each; ``read`` adds to them.
        provenance: the content of run.json; None before ``read``, and if it is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.run = path / "run.json"
        self.results = path / "results.csv"
        self.summary = path / "summary.json"
        self.curves = path / CURVES
        self.components = path / COMPONENTS
        self.points = path / POINTS
        self.episodes = path / EPISODES
        self.step_fitness = path / STEP_FITNESS
        self.fitness = path / "fitness.py"
        self.variants = path / "variants.json"
        self.tensorboard = path / TENSORBOARD
        self.checkpoint = path / "checkpoint.pth"
        self.jobs = path / "jobs"
        self.states = path / "states"
        self.profile = path / "profile"
        self.trajectories = path / "trajectories.npz"
        self.notes: list[str] = []
        self.provenance: Provenance | None = None
        self._trains = False

    @classmethod
    def create(
        cls,
        path: Path,
        spec: RunSpec,
        machines: str | None = None,
    ) -> RunFolder:
        """Create the folder with the config and copies of all candidates and of the fitness file.

        ``machines`` names the devices, where there are several.

        Raises UserError if the path is a file or a folder that is not empty, or cannot be written.
        """
        with user_input():
            refuse_taken(path)
        folder = cls(path)
        texts = {folder.source(c.name): c.source.encode("utf-8", _BYTES) for c in spec.sources}
        if spec.fitness is not None:
            texts[folder.fitness] = spec.fitness.source.encode("utf-8", _BYTES)
        variants = {c.name: c.variant for c in spec.sources if c.variant is not None}
        if variants:
            texts[folder.variants] = pack_variants(variants).encode()
        there = path.is_dir()
        try:
            path.mkdir(parents=True, exist_ok=True)
            for file, text in texts.items():
                file.parent.mkdir(parents=True, exist_ok=True)
                write_atomic(file, text)
            config = to_yaml({**spec.config.plain(), "candidates": [source.entry() for source in spec.sources]})
            digests = {file.relative_to(path).as_posix(): digest(text) for file, text in texts.items()}
            folder.provenance = Provenance.new(config, spec.config.device, digests, spec.task, machines)
            folder.provenance.write(folder.run)
            write_atomic(folder.config, config)  # last: a folder with a config.yaml can be resumed
        except BaseException as error:
            for written in path.iterdir() if there else [path]:  # leave it empty, as it was
                shutil.rmtree(written, ignore_errors=True)
            if isinstance(error, OSError):
                reason = disk_trouble(error, path) or error.strerror  # it may be the folder itself
                raise UserError(f"--output_dir {path} cannot be written: {reason}") from error
            raise
        return folder

    @classmethod
    def open(cls, path: Path, flag: str = "--resume") -> RunFolder:
        """Open the folder of a run to resume it, or for another ``flag``, which messages begin with.

        Raises UserError if it is not the folder of a run.
        """
        folder = cls(Path(os.path.abspath(path)))
        missing = f"{flag} {path}: it is not the folder of a run".lstrip()
        try:
            names = set(os.listdir(folder.path))
        except OSError as error:
            reasons = {FileNotFoundError: "no such folder", NotADirectoryError: "it is a file"}
            parent = folder.path.parent
            beside = filter(str.isprintable, os.listdir(parent)) if os.access(parent, os.R_OK | os.X_OK) else ()
            near = near_matches(folder.path.name, list(beside)) if isinstance(error, FileNotFoundError) else ""
            raise UserError(f"{missing}: {reasons.get(type(error), error.strerror)}{near}") from error
        if not names & {folder.config.name, folder.run.name}:
            runs = [Path(path, x) for x in sorted(names) if (folder.path / x / folder.config.name).is_file()]
            runs = [run for run in runs if run.name.isprintable()]
            more = f"; give one of those in it, such as {runs[-1]}" if runs else ""
            raise UserError(f"{missing} (no config.yaml){more}")
        other = other_kind(folder.path, RUN)
        if other is not None:
            raise UserError(other)
        return folder

    def locked(self) -> AbstractContextManager[None]:
        """Lock the folder against other processes, see ``core.files.locked``."""
        return locked(self.path, "run")

    def in_progress(self) -> bool:
        """Return whether a process holds the lock; the folder is not changed."""
        try:
            import fcntl

            with open(self.path / LOCK, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # released when it is closed
        except (FileNotFoundError, ImportError):  # Windows has no fcntl
            return False
        except OSError:
            return True
        return False

    def candidate(self, name: str) -> Path:
        """Return the folder of a candidate."""
        return self.path / "candidates" / name

    def source(self, name: str) -> Path:
        """Return the copy of a candidate's file."""
        return self.candidate(name) / "source.py"

    @property
    def complete(self) -> bool:
        """Whether the run is complete."""
        return self.summary.is_file()

    @property
    def recorded(self) -> dict[str, Any]:
        """The content of summary.json; empty if the run is not complete, or the file is damaged."""
        try:
            return read_json(self.summary)
        except (OSError, ValueError):
            return {}

    @property
    def begun(self) -> str | None:
        """When the run began, ISO 8601, after ``read``; None if it is not known."""
        return None if self.provenance is None else self.provenance.begun

    @property
    def software(self) -> dict[str, str | None]:
        """Versions and device with which the run was last begun or resumed, after ``read``; empty if not known."""
        record = self.provenance
        return dict(record.software[-1]) if record is not None and record.software else {}

    def read(self, trains: bool | None = None) -> tuple[RunConfig, list[CandidateSource]]:
        """Return the config, and the candidates as they were when the run began, independent of the user's files.

        Args:
            trains: whether the candidates are to be trained, so that changed copies are errors and not notes; None if
                the run is not complete.

        Raises:
            UserError: files are missing or damaged, the config was changed so that the run cannot be resumed, or the
                run has a newer format.
        """
        self._trains = not self.complete if trains is None else trains
        try:
            self.provenance = read_provenance(self.run)
        except ValueError as error:
            self.notes.append(f"{error}: changes of config.yaml cannot be detected")
        try:
            content = read_config(self.config, self.provenance, self.complete, self.notes)
        except ValueError as error:
            other = other_kind(self.path, RUN)
            raise self._damaged(str(error)) if other is None else UserError(other) from error
        try:
            cfg = RunConfig.checked({key: value for key, value in content.items() if key != "candidates"})
        except UserError as error:  # a key that may be changed has an invalid value, or this version lacks a key
            version = self.software.get("envcoder_bench") or "another version"
            advice = f"{self.run.name} has it, too: resume with envcoder-bench {version}, or begin a new run"
            advice = advice if isinstance(error, UnknownKey) else ""
            raise UserError(f"{self.config}: {error}", advice=advice, file=self.config) from error
        if self.complete:
            for log in filter(Path.is_file, self.logs):
                self.note_changed(log)
        overrides = {x.name: x.get("overrides", Settings({})) for x in content.candidates}
        variants = self._read_variants(overrides)
        sources = [
            CandidateSource(x.name, x.file, self._text(self.source(x.name)), overrides[x.name], variants.get(x.name))
            for x in content.candidates
        ]
        return cfg, sources

    def _read_variants(self, overrides: Mapping[str, Mapping[str, float]]) -> dict[str, Variant]:
        noted = self.provenance is not None and self.variants.name in self.provenance.sources
        if not noted and not self.variants.exists():
            return {}
        try:
            return read_variants(self._text(self.variants), overrides)
        except ValueError as error:
            raise self._damaged(f"{self.variants}: {error}") from error

    def resolve(self, cfg: RunConfig, sources: Sequence[CandidateSource]) -> RunSpec:
        """Return the run with its task, from the results of ``read``.

        Raises UserError if the task is not where config.yaml says, or it is another task; or as ``read_fitness``.
        """
        try:
            spec = RunSpec.of(cfg, sources, self.read_fitness(cfg))
        except ValueError as error:
            raise missing_task(self.config, "task_source", cfg.task_source, error) from error
        if spec.task.name != cfg.task.name:
            raise UserError(
                f"{self.config}: the task in {cfg.task_source} is {spec.task.name}, and the run's is {cfg.task.name}"
            )
        return spec

    def try_code(self, spec: RunSpec) -> None:
        """Run the task's code once. Raises UserError if the code or its files fail."""
        try:
            spec.try_code()
        except ValueError as error:
            raise UserError(f"{self.config}: {error}; {_RESTORE}") from error

    def _text(self, file: Path) -> str:
        """The text of a file of user code, which must be as it was when the run began."""
        try:
            text = file.read_bytes()
        except OSError as error:
            raise self._damaged(f"{file}: {error.strerror}") from error
        digests = self.provenance.sources if self.provenance is not None else {}
        recorded = digests.get(file.relative_to(self.path).as_posix())
        if recorded not in (None, digest(text)):
            if self._trains:
                raise UserError(f"{file} was changed since the run began: undo that, or begin a new run")
            self.notes.append(
                f"{file.relative_to(self.path)} was changed after the run: these are results of the text before"
            )
        return text.decode("utf-8", _BYTES)

    def _damaged(self, what: str) -> UserError:
        return UserError(f"{self.path}: the run is damaged: {what}; restore a copy, or begin a new run")

    def note_software(self, device: str, machines: str | None = None) -> str:
        """Record the software and device of a resumed run; return a warning if they differ from before, else ""."""
        if self.provenance is None:
            self.provenance = Provenance(None, [], self.config.read_text("utf-8"))
        different = self.provenance.resumed(device, machines)
        if different:
            self.provenance.write(self.run)
        return different and f"{different}: the results may not be bitwise those of an uninterrupted run"

    def read_fitness(self, cfg: RunConfig) -> CandidateSource | None:
        """Return the fitness file as it was when the run began; None for the task's own fitness.

        Raises UserError if it is missing or damaged.
        """
        if cfg.fitness is None:
            return None
        return CandidateSource(FITNESS_NAME, cfg.fitness, self._text(self.fitness))

    def load_checkpoint(self) -> Checkpoint | None:
        """Return the last checkpoint, on the CPU, or None if there is none yet.

        Raises UserError if it is damaged, was changed, or has a newer format.
        """
        there = self.checkpoint.exists()
        saved = checkpoint.load_checkpoint(self.checkpoint) if there else Checkpoint()
        jobs = [checkpoint.load_job(path)[0] for path in sorted(self.jobs.glob("*.pth"))]
        saved.jobs = [job for job in jobs if not saved.done.issuperset(job.groups)]  # that it has not got beyond
        for path in ([self.checkpoint] if there else []) + [job.file for job in saved.jobs]:
            self.refuse_changed(path)
        return saved if there or saved.jobs else None

    def job(self, name: str) -> Path:
        """The checkpoint of a wave in training on one of several devices."""
        return self.jobs / f"{name}.pth"

    def write_state(self, groups: Sequence[GroupKey], content: bytes) -> None:
        """Write the state of a wave at its end, a result of ``pack_job``."""
        self.states.mkdir(exist_ok=True)
        self.write(self.states / f"{Job(tuple(groups), 0.0).name}.pt", content)

    # digests of the files that the run wrote

    def write(self, path: Path, content: bytes) -> None:
        """Write a file atomically, with its digest in run.json, by which ``refuse_changed`` notices a change.

        run.json is written first and keeps the digest before, so that a run killed between the two writes resumes.
        """
        if self.provenance is not None:
            files = {name: digests for name, digests in self.provenance.files.items() if (self.path / name).exists()}
            name = path.relative_to(self.path).as_posix()
            files[name] = [*files.get(name, [])[-1:], digest(content)]
            self._record(files)
        write_atomic(path, content)

    def write_checkpoint(self, saved: Checkpoint) -> None:
        """Write checkpoint.pth."""
        self.write(self.checkpoint, checkpoint.pack_checkpoint(saved))

    def record_end(self) -> None:
        """Record the digests of the tables of a run that is about to be complete."""
        if self.provenance is not None:
            tables = [path for path in (self.results, *self.logs) if path.is_file()]
            states = {name: d for name, d in self.provenance.files.items() if name.startswith(f"{self.states.name}/")}
            self._record({**states, **{path.name: [file_digest(path)] for path in tables}})

    @property
    def logs(self) -> list[Path]:
        """The tables that are written during training, whether they are there or not."""
        return [self.curves, self.components, self.points, self.episodes, self.step_fitness]

    def _record(self, files: dict[str, list[str]]) -> None:
        assert self.provenance is not None
        self.provenance.files = files
        self.provenance.write(self.run)

    def refuse_changed(self, path: Path) -> None:
        """Raise UserError if a file that the run wrote is not as it was."""
        if self._changed(path):
            raise UserError(
                f"{path} was changed since the run wrote it: restore a copy of it; or delete {self.run.name}, and it is"
                " used as it is"
            )

    def note_changed(self, path: Path) -> None:
        """Note that a table of a complete run was changed; that is an error if candidates are to be trained."""
        if self._trains:
            self.refuse_changed(path)
        elif self._changed(path):
            self.notes.append(f"{path.name} was changed after the run: restore a copy of it")

    def _changed(self, path: Path) -> bool:
        name = path.relative_to(self.path).as_posix()
        if self.provenance is None or name not in self.provenance.files:
            return False
        present = file_digest(path)
        if present not in self.provenance.files[name]:
            return True
        self.provenance.files[name] = [present]  # the next write keeps it
        return False


_RESTORE = "restore the task's files, or begin a new run"


def missing_task(config: Path, key: str, address: str | None, error: Exception) -> UserError:
    """Return the error of a task that is not found at ``address``, the value of ``key`` in ``config``, with a remedy.

    The address None is a task of an installed package.
    """
    path = file_of(address or "")
    if os.sep in path and os.path.exists(path):
        remedy = _RESTORE
    elif os.sep in path:
        remedy = f"move the task back to {path}, or set {key} in this file to its new place"
    elif ":" in path:
        remedy = f"make it importable again, or set {key} in this file to its new address"
    else:
        remedy = f"install its package again, or set {key} in this file to the task's folder"
    return UserError(f"{config}: {str(error).replace('--task ', f'{key} ')}; {remedy}")


@contextlib.contextmanager
def stoppable(folder: Path | None) -> Iterator[None]:
    """Convert Ctrl-C to Stopped, with the current step and the folder."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise Stopped(str(stop), folder) from None


@contextlib.contextmanager
def at_work(folder: RunFolder) -> Iterator[None]:
    """Add the run folder to the errors of Ctrl-C, of the disk and of workers."""
    try:
        with stoppable(folder.path):
            yield
    except NoWorker as error:
        raise MachineError(str(error), folder.path) from error
    except OSError as error:
        trouble = disk_trouble(error, folder.path)
        if not trouble:
            raise
        raise MachineError(trouble, folder.path) from error
