"""``envcoder-bench verify``: train a run's candidate again, elsewhere and with fresh seeds, and compare.

An agent that wrote the run may have changed its files, the baselines, caches or the package. So the candidate's text is
held against the hash of the run's beginning, the baselines are those of the installed package, whose files are held
against its record, and the training has a folder and a cache of its own.
"""

import importlib.metadata
import logging
import math
import os
import secrets
import subprocess
import sys
import tempfile
from base64 import urlsafe_b64encode
from dataclasses import replace
from pathlib import Path

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.files import digest, file_digest, stamped_folder
from envcoder_bench.core.folders import PACKAGE
from envcoder_bench.results.effects import SIZE
from envcoder_bench.results.fitness_model import Difference, FitnessModel
from envcoder_bench.results.pairs import Pair, campaign_pair
from envcoder_bench.results.rows import fewest_episodes, whole_fitness
from envcoder_bench.results.statistics import LEVEL
from envcoder_bench.run.fitness import read_file
from envcoder_bench.run.folder.policies import OpenedRun, open_run
from envcoder_bench.run.folder.ranked import bounds_of, run_model
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.run.prepare.run_files import baseline_sources
from envcoder_bench.run.spec import CandidateSource, RunConfig, RunSpec
from envcoder_bench.serve.documents import Verdict, Verified
from envcoder_bench.shaping.text import code_of
from envcoder_bench.sources.registry import is_installed
from envcoder_bench.tasks.base import BASELINES, HUMAN, UNTRAINED

EQUAL, DIFFERENT, CANNOT_TELL = "equal", "different", "cannot tell"
FIRST_SEED = 3_000_000_000  # fresh seeds are drawn from here on
log = logging.getLogger(__name__)


def verify(
    path: Path, candidate: str | None = None, seeds: int = 10, fitness: Path | None = None, output: Path | None = None
) -> tuple[Verified, Pair]:
    """Train a candidate of a run again; it takes as long as that part of the run.

    Args:
        candidate: default the best one.
        seeds: number of fresh seeds.
        fitness: your own copy of the run's --fitness file.
        output: a new folder for the run.

    Returns:
        What the training elsewhere says, and the candidate against the installed package's human baseline in it.

    Raises:
        UserError: the run, the candidate or the new run cannot be used.
    """
    run = open_run(path)
    name = candidate or run.best()
    source = run.source(name)
    if name in BASELINES:
        raise UserError(f"{name} is a baseline: give --candidate NAME")
    model = run_model(run.folder, run.cfg, run.rows)
    if name not in model.names:
        raise UserError(f"{run.folder.path}: {name} has no fitness")
    spec = _spec(run, source, seeds, fitness)
    findings = [*_changed(run, spec, fitness is not None), *package_changes()]
    folder = RunFolder.create((output or stamped_folder("runs", f"verify_{run.cfg.task.name}")).absolute(), spec)
    _train(folder.path)
    again = open_run(folder.path)
    fresh = run_model(again.folder, again.cfg, again.rows)
    if name not in fresh.names:
        row = next((row for row in again.ranked if row.candidate == name), None)
        raise UserError(f"{folder.path}: {name} has no fitness{f': {row.error}' if row is not None else ''}")
    difference = _difference(run, again, name)
    versus_human = Pair(name, HUMAN, reason=f"{HUMAN} has no fitness")
    if HUMAN in fresh.names:
        versus_human = campaign_pair(fresh, name, HUMAN, LEVEL)
    verified = Verified(
        candidate=name,
        source_hash=digest(run.folder.source(name).read_bytes()),
        findings=findings,
        recorded=model.interval(name)[0],
        fresh=fresh.interval(name)[0],
        difference=difference.mean,
        interval=(difference.low, difference.high),
        verdict=judge(difference, margin(run, name)),
        versus_human=Verdict.of(versus_human),
        folder=folder.path,
    )
    return verified, versus_human


def _spec(run: OpenedRun, source: CandidateSource, seeds: int, fitness: Path | None) -> RunSpec:
    """Return the new run: the run's config with fresh seeds, the candidate, and the task's baselines as installed."""
    content = run.cfg.plain()
    content.update(seed=FIRST_SEED + secrets.randbelow(10**9), seeds=seeds, devices=None, ray=None)
    for key in ("race", "wandb"):
        content[key] = {**content[key], "enabled": False}
    measure = run.fitness
    if fitness is not None:
        measure = read_file(str(fitness))
    try:
        spec = RunSpec.of(RunConfig.checked(content), fitness=measure)
    except ValueError as error:
        raise UserError(f"{run.folder.config}: {error}") from error
    return replace(spec, sources=(*baseline_sources(spec.task, spec.config.task), source))


def _changed(run: OpenedRun, spec: RunSpec, has_fitness: bool) -> list[str]:
    """Return which files of a run are not what they were, or not the installed ones."""
    findings = [*dict.fromkeys(run.folder.notes)]
    if run.folder.provenance is None:
        findings.append("run.json is missing or damaged: the candidate's text has no hash to be held against")
    installed = {source.name: source.source for source in spec.sources}
    for baseline in (HUMAN, "unshaped"):
        if baseline in run.sources and run.sources[baseline].source != installed[baseline]:
            findings.append(f"{baseline} of the run is not that of the installed package")
    if not is_installed(spec.config.address):
        findings.append(f"the task is code of {spec.config.address}, which is trained with as it is now")
    if run.fitness is not None and not has_fitness:
        findings.append("the fitness is measured by the run's copy of --fitness: give --fitness with your own")
    elif run.fitness is not None and code_of(run.fitness.source) != code_of(getattr(spec.fitness, "source", "")):
        findings.append("the run's copy of --fitness has other code than yours")
    return findings


def package_changes() -> list[str]:
    """Return which files of the installed package are not as its record says; none are known of a checkout."""
    try:
        files = importlib.metadata.files("envcoder-bench") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    findings, package_files = [], 0
    for file in files:
        if file.hash is None or file.suffix not in (".py", ".xml", ".yaml") or file.hash.mode != "sha256":
            continue
        package_files += "envcoder_bench" in file.parts
        path = Path(str(file.locate()))
        there = bytes.fromhex(file_digest(path)) if path.is_file() else b""
        if urlsafe_b64encode(there).rstrip(b"=").decode() != file.hash.value:
            findings.append(f"{path} of the installed package was changed")
    if not package_files:
        log.warning("the package is not installed from a wheel: its own files cannot be checked")
    return findings


def _train(folder: Path) -> None:
    """Train the run in a folder in another process, which has a new cache and no settings of this one."""
    with tempfile.TemporaryDirectory(prefix="verify_") as empty:
        kept = {key: os.environ[key] for key in ("PATH", "HOME", "LANG", "CUDA_VISIBLE_DEVICES") if key in os.environ}
        words = [sys.executable, "-m", "envcoder_bench.eval_shapers", "--resume", str(folder), "--video", "0"]
        environment = {**kept, "PYTHONPATH": str(PACKAGE.parent), "ENVCODER_BENCH_CACHE": empty}
        code = subprocess.run(words, cwd=empty, env=environment, stdout=subprocess.DEVNULL, check=False).returncode
    if code not in (0, 1):
        raise UserError(f"the training ended with exit code {code}", advice=f"see {folder / 'run.log'}")


def _difference(run: OpenedRun, again: OpenedRun, name: str) -> Difference:
    """Return the fitness in the new run minus that in the run; their seeds are not paired."""
    fitness = {
        f"{label} {candidate}": by_seed
        for label, each in (("recorded", run), ("fresh", again))
        for candidate, by_seed in whole_fitness(each.rows).items()
        if candidate != UNTRAINED
    }
    model = FitnessModel(fitness, None, bounds_of(run.folder, run.cfg), fewest_episodes([*run.rows, *again.rows]))
    return model.difference(f"fresh {name}", f"recorded {name}")


def margin(run: OpenedRun, name: str) -> float:
    """Return the difference that matters: a share SIZE of the fitness' range, or of what the candidate has learned."""
    low, high = bounds_of(run.folder, run.cfg)
    if math.isfinite(high - low):
        return SIZE * (high - low)
    values = {row.candidate: row.fitness for row in run.ranked}
    return SIZE * abs(values[name] - values.get(UNTRAINED, math.nan))


def judge(difference: Difference, matters: float) -> str:
    """Return DIFFERENT beyond chance, EQUAL if the whole interval is within what matters, else CANNOT_TELL."""
    if difference.p < LEVEL:
        return DIFFERENT
    return EQUAL if max(abs(difference.low), abs(difference.high)) <= matters else CANNOT_TELL
