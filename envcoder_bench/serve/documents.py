"""The documents that commands print with ``--json``: one dataclass for each kind, from which the schema is generated.

A change that a reader may notice raises VERSION, except a new field.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from envcoder_bench.core.errors import Stopped, UserError, causes
from envcoder_bench.core.plain_text import one_line
from envcoder_bench.core.shell import display_path
from envcoder_bench.report.stress import missing, ordered, sentences
from envcoder_bench.results.effects import Effect
from envcoder_bench.results.pairs import Pair, advice
from envcoder_bench.results.ranking import Ranked
from envcoder_bench.results.stress import Stress
from envcoder_bench.shaping.contract import Fault
from envcoder_bench.tools.check import CandidateCheck, CheckResult
from envcoder_bench.tools.compare import Comparison, notes
from envcoder_bench.tools.describe import TaskFacts
from envcoder_bench.tools.listing import ListedRun

if TYPE_CHECKING:
    from envcoder_bench.run.result import RunResult  # it imports pandas, which --check does not need

VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Document:
    """What all documents have: a kind, and the version of this format."""

    kind: str
    version: Literal[1] = VERSION

    def as_json(self) -> str:
        """Return the document on one line; numbers that are not known are null."""
        return TypeAdapter(type(self)).dump_json(self, warnings="error").decode()


@dataclass(frozen=True, kw_only=True)
class Error(Document):
    """A command that ended with an error, or was stopped.

    Attributes:
        message: what is wrong, where, and what to do, as printed without ``--json``.
        file, line, function: the place in a file of the user; empty or null if unknown.
        advice: what to change, where it is known apart from the message.
        exit_code: that of the command.
    """

    kind: Literal["error"] = "error"
    message: str
    file: str = ""
    line: int | None = None
    function: str = ""
    advice: str = ""
    exit_code: int = 2


def error_document(error: BaseException, message: str, exit_code: int = 2) -> Error:
    """Return the document of an exception, with the place of the candidate's fault that caused it, if there is one."""
    for cause in causes(error):
        fault = getattr(cause, "fault", None)
        if isinstance(fault, Fault):
            return Error(
                message=one_line(message),
                file=fault.file,
                line=fault.line,
                function=fault.function,
                advice=fault.remedy,
                exit_code=exit_code,
            )
    folder = error.folder if isinstance(error, Stopped) else None
    file, advice_text = (error.file, error.advice) if isinstance(error, UserError) else (folder, "")
    return Error(message=one_line(message), file=str(file or ""), advice=advice_text, exit_code=exit_code)


# runs


@dataclass(frozen=True)
class Verdict:
    """A candidate compared with another one, see ``results.pairs.Pair``.

    Attributes:
        difference, interval: fitness minus the other's, and its 95 % interval.
        verdict: better, worse or cannot tell.
        p: p-value, corrected for the other tests of the run.
        seeds: that both have.
        seeds_needed: seeds with which a difference of this size is told; null if unknown or over 1,000.
        reason: why the interval is missing; empty if it is not.
    """

    versus: str
    difference: float
    interval: tuple[float, float]
    verdict: str
    p: float
    seeds: int
    seeds_needed: int | None
    reason: str = ""

    @classmethod
    def of(cls, pair: Pair) -> "Verdict":
        interval = (pair.low, pair.high)
        return cls(
            pair.second, pair.mean, interval, pair.verdict, pair.corrected, pair.seeds, pair.seeds_needed, pair.reason
        )


@dataclass(frozen=True, kw_only=True)
class Policies(Document):
    """``eval-policies``: policies on terrains.

    Attributes:
        ranking, pairs: the policies, and each on each terrain, as in ranking.csv and summary.csv.
        folder: with the page, the tables and the episodes.
    """

    kind: Literal["policies"] = "policies"
    folder: Path
    complete: bool
    ranking: Sequence[Mapping[str, Any]] = ()
    pairs: Sequence[Mapping[str, Any]] = ()
    page: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Stressed(Document):
    """``envcoder-bench stress``: policies under disturbances, see docs/stress.md.

    Attributes:
        settings, commands: of stress.json and stress_commands.csv.
        ranking: the candidates, with intervals; fitness and survival by physics (empty: the run's).
        sentences, missing: what the text says of disagreement, and of what was not measured.
    """

    kind: Literal["stress"] = "stress"
    folder: Path
    settings: Mapping[str, Any]
    ranking: Sequence[Mapping[str, Any]]
    commands: Sequence[Mapping[str, Any]]
    sentences: Sequence[str]
    missing: Sequence[str]
    page: Path | None


@dataclass(frozen=True, kw_only=True)
class Ranking(Document):
    """``eval-shapers``: the ranking of a run.

    Attributes:
        complete, stopped_at: whether the run is complete, else where it stopped; ``--resume`` continues it.
        best: the best candidate that is not a baseline; empty without one.
        ranking: all candidates and baselines, best first.
        effects: the variants of ``--terms`` and ``--sweep``.
        page: report.html, if it is written.
        stress: with ``--stress``, the result of ``envcoder-bench stress``.
    """

    kind: Literal["ranking"] = "ranking"
    folder: Path
    complete: bool
    stopped_at: str
    fitness_meaning: str
    best: str
    ranking: Sequence[Ranked]
    effects: Sequence[Effect] = ()
    page: Path | None = None
    stress: Stressed | None = None


def ranking(result: "RunResult", page: Path | None = None) -> Ranking:
    """Return the document of a run."""
    best = next((row.candidate for row in result.ranked if row.rank is not None and not row.baseline), "")
    return Ranking(
        folder=result.folder,
        complete=result.complete,
        stopped_at=result.stopped_at,
        fitness_meaning=result.fitness_meaning,
        best=best,
        ranking=result.ranked,
        effects=[effect for study in result.studies for effect in study.effects],
        page=page if page is not None and page.is_file() else None,
    )


@dataclass(frozen=True, kw_only=True)
class Check(Document):
    """``eval-shapers --check``: what the check of each candidate found.

    Attributes:
        passed: whether every candidate that is not skipped can train.
        compiles: whether functions are compiled, with this config on this machine.
        judged: the states on which rewards were judged, or why they were not.
    """

    kind: Literal["check"] = "check"
    passed: bool
    compiles: bool
    candidates: Sequence[CandidateCheck]
    judged: str


def check(result: CheckResult) -> Check:
    """Return the document of a check."""
    return Check(passed=result.passed, compiles=result.compiles, candidates=result.rows, judged=result.judged)


@dataclass(frozen=True, kw_only=True)
class Task(Document):
    """``eval-shapers --describe``: a task."""

    kind: Literal["task"] = "task"
    facts: TaskFacts


@dataclass(frozen=True, kw_only=True)
class Search(Document):
    """``auto-shape``: a search.

    Attributes:
        best: the best candidate, which is in best.py; empty if none could be trained.
        complete: whether the search is complete; otherwise ``command`` resumes it.
        final: it and the baselines, evaluated with seeds that no round had; empty before the end.
    """

    kind: Literal["search"] = "search"
    best: str
    complete: bool
    command: str
    final: Sequence[Ranked] = ()


# the verbs of envcoder-bench


@dataclass(frozen=True, kw_only=True)
class ComparedPair(Document):
    """``envcoder-bench compare RUN A B``: two candidates of a run.

    Attributes:
        advice: how many seeds would tell, and their command; empty where that is told or unknown.
        facts: fitness, differences by seed, where they differ, and signs of a hack, in words.
    """

    kind: Literal["pair"] = "pair"
    candidate: str
    compared: Verdict
    advice: str
    facts: Mapping[str, str]


def compared_pair(pair: Pair, folder: Path, facts: Mapping[str, str]) -> ComparedPair:
    """Return the document of two candidates; ``facts`` as of ``tools.pair.pair_facts``."""
    more = advice(pair, display_path(folder))
    return ComparedPair(candidate=pair.first, compared=Verdict.of(pair), advice=more, facts=facts)


@dataclass(frozen=True)
class Shared:
    """A candidate of the first run that other runs have: its fitness, and the others' differences by run.

    Attributes:
        other_source: runs in which the file of this name is another one.
    """

    candidate: str
    fitness: float
    differences: Mapping[str, tuple[float, float, float]]
    other_source: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class ComparedRuns(Document):
    """``envcoder-bench compare RUN RUN``: several runs of a task.

    Attributes:
        runs: their folders by label; differences are to the first one.
        ranking: all candidates of all runs, named ``label: candidate``.
        shared: candidates of the first run that others have; differences with their 95 % intervals.
        settings: values by run of the settings that differ.
    """

    kind: Literal["comparison"] = "comparison"
    runs: Mapping[str, Path]
    fitness_meaning: str
    ranking: Sequence[Ranked]
    shared: Sequence[Shared]
    settings: Mapping[str, Sequence[str]]
    notes: Sequence[str]
    page: Path | None


def compared_runs(comparison: Comparison, page: Path | None) -> ComparedRuns:
    """Return the document of several runs."""
    shared = [
        Shared(
            each.name,
            each.fitness[0],
            {label: (gap.mean, gap.low, gap.high) for label, gap in each.differences.items()},
            each.other_source,
        )
        for each in comparison.shared
    ]
    return ComparedRuns(
        runs={label: run.folder.path for label, run in comparison.runs.items()},
        fitness_meaning=comparison.fitness_meaning,
        ranking=comparison.ranked,
        shared=shared,
        settings=comparison.settings,
        notes=notes(comparison),
        page=page,
    )


@dataclass(frozen=True, kw_only=True)
class Runs(Document):
    """``envcoder-bench list``: the runs below folders, oldest first."""

    kind: Literal["runs"] = "runs"
    runs: Sequence[ListedRun]


@dataclass(frozen=True, kw_only=True)
class CheckedTask(Document):
    """``envcoder-bench check-task``: whether a task fulfils the contract, and otherwise the violations."""

    kind: Literal["checked task"] = "checked task"
    task: str
    passed: bool
    findings: Sequence[str] = ()


@dataclass(frozen=True)
class Played:
    """The first episode of a policy: how it ended, empty if by its time limit, and after how many seconds."""

    candidate: str
    seed: int
    fitness: float
    ended: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Episodes(Document):
    """``envcoder-bench play``: an episode of each policy; ``video`` is null with ``--view``."""

    kind: Literal["episodes"] = "episodes"
    episodes: Sequence[Played]
    failed: Mapping[str, str]
    video: Path | None


@dataclass(frozen=True, kw_only=True)
class Written(Document):
    """``envcoder-bench export``, ``new-task`` and ``report``: what was written.

    Attributes:
        files: by what they are: policy, description, model, assets, task, page.
        notes: what to know of them.
    """

    kind: Literal["written"] = "written"
    files: Mapping[str, Path] = field(default_factory=dict)
    notes: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Verified(Document):
    """``envcoder-bench verify``: a candidate of a run, trained again elsewhere with fresh seeds.

    Attributes:
        source_hash: SHA-256 of the candidate's text.
        findings: files that are not what they were, or should be.
        recorded, fresh: mean fitness in the run, and in the new one in ``folder``.
        difference, interval: fresh minus recorded, with its 95 % interval.
        verdict: equal, different or cannot tell.
        versus_human: the candidate against human in the new run.
    """

    kind: Literal["verification"] = "verification"
    candidate: str
    source_hash: str
    findings: Sequence[str]
    recorded: float
    fresh: float
    difference: float
    interval: tuple[float, float]
    verdict: str
    versus_human: Verdict
    folder: Path


def stressed(
    folder: Path,
    stress: Stress,
    fitness_order: Sequence[str],
    failed: Mapping[str, str],
    by_stress: bool,
    page: Path | None,
) -> Stressed:
    """Return the document of a run's stress; ``by_stress``: the order."""
    return Stressed(
        folder=folder,
        settings=asdict(stress.settings),
        ranking=[
            {**asdict(row), "verdict": row.verdict, "physics": stress.in_physics(row.candidate)}
            for row in ordered(stress, fitness_order, by_stress)
        ],
        commands=[asdict(row) for row in stress.commands],
        sentences=sentences(stress, fitness_order),
        missing=missing(stress, failed),
        page=page,
    )


DOCUMENTS: tuple[type[Document], ...] = (
    Error,
    Ranking,
    Check,
    Task,
    Search,
    Policies,
    ComparedPair,
    ComparedRuns,
    Runs,
    CheckedTask,
    Episodes,
    Stressed,
    Verified,
    Written,
)


# the schema


class _Schema(GenerateJsonSchema):
    """JSON has no NaN: a number that is not known is null."""

    def float_schema(self, schema: Any) -> dict[str, Any]:
        return {"type": ["number", "null"]}


def schema(more: Sequence[type[Document]] = ()) -> dict[str, Any]:
    """Return the JSON schema of all documents; ``more`` are those of higher layers."""
    union: Any = DOCUMENTS[0]
    for document in (*DOCUMENTS[1:], *more):
        union = union | document
    content = TypeAdapter(union).json_schema(schema_generator=_Schema, mode="serialization")
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        "title": f"envcoder-bench --json, version {VERSION}",
        **content,
    }
