"""The check of candidates without training: load, check and trace them as a run does, and take one step with them."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch

from envcoder_bench.compile.terms import Terms, find_terms, recorded_reward
from envcoder_bench.core import noise
from envcoder_bench.core.errors import UserError
from envcoder_bench.core.purposes import Purpose
from envcoder_bench.core.torch_settings import settings_kept
from envcoder_bench.core.words import number, shorten, wrap
from envcoder_bench.report.table import GAP, MIN_NAME_WIDTH, render_by_place
from envcoder_bench.results.ranking import failed_of
from envcoder_bench.run import lint
from envcoder_bench.run.inputs import Candidates, described, read_candidates, with_candidates
from envcoder_bench.run.prepare.environments import build_env, in_small_simulation
from envcoder_bench.run.prepare.groups import PrepareContext, check_and_trace, make_context, make_group, stateful_note
from envcoder_bench.run.prepare.run_files import SlowFiles, load
from envcoder_bench.run.spec import CandidateSource, RunSpec
from envcoder_bench.shaping.contract import CandidateError, CandidateWarning, Fault, Shaping
from envcoder_bench.shaping.copies import Known, without_effect
from envcoder_bench.shaping.faults import of_candidate
from envcoder_bench.shaping.kinds import REWARD
from envcoder_bench.shaping.lint import term_remarks
from envcoder_bench.shaping.outputs import TOTAL
from envcoder_bench.tasks.base import BASELINES

OK, FAILED, SKIPPED = "ok", "failed", "skipped"
_PREFIX = "compute_"

Spread = tuple[float, float, float]  # mean, min, max
ENVS, STEPS = 64, 48  # size of a rollout
MOST_ENVS = 65_536  # environments of all candidates that take the step together


@dataclass
class CandidateCheck:
    """The result of checking one candidate without training.

    Attributes:
        status: OK, FAILED or SKIPPED (it defines none of the requested functions).
        defines: its functions that a run would use.
        unused: its functions that ``--shaper_types`` leaves out.
        obs_dim, action_dim: widths of the observation and the action; the baseline's for missing functions.
        not_compiled: why, for each function that is not compiled.
        notes: what else to know before training.
        reward: mean, minimum and maximum of the reward in one step.
        components: the same for each component of the reward.
        form: what the components of its reward are, in words; empty without any.
    """

    name: str
    status: str = OK
    baseline: bool = False
    defines: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    obs_dim: int = 0
    action_dim: int = 0
    not_compiled: list[Fault] = field(default_factory=list)
    notes: list[Fault] = field(default_factory=list)
    reward: Spread | None = None
    components: dict[str, Spread] = field(default_factory=dict)
    form: str = ""
    fault: Fault | None = None

    @property
    def error(self) -> str:
        """Why it failed or is skipped; empty if neither."""
        return "" if self.fault is None else str(self.fault)

    @property
    def defines_reward(self) -> bool:
        """Whether the candidate is not a baseline and a run would train with its own reward."""
        return REWARD in self.defines and not self.baseline


@dataclass
class CheckResult:
    """The result of a check.

    Attributes:
        rows: one per candidate, baselines first.
        compiles: whether functions are compiled, with this config on this machine.
        num_envs: number of environments of each candidate in the step.
        judged: the states on which rewards were judged, or the reason why they were not.
    """

    rows: list[CandidateCheck]
    compiles: bool
    num_envs: int
    judged: str = ""

    @property
    def passed(self) -> bool:
        """Whether every candidate that is not skipped can train."""
        return all(row.status != FAILED for row in self.rows)

    def __str__(self) -> str:
        return render_check(self)


def check_candidates(
    task: str,
    overrides: Sequence[str] = (),
    candidates: Candidates = None,
    candidate_idx: str | Sequence[int] | None = None,
    num_envs: int | None = None,
) -> CheckResult:
    """Check candidates against a task without training. The arguments are those of a run.

    Args:
        candidates, candidate_idx: as of ``envcoder_bench.evaluate``.
        num_envs: total number of environments, instead of ``num_envs_per_candidate``.

    Raises:
        UserError: bad input, or no candidate defines a requested function.
    """
    spec = described(task, overrides)
    candidates_read = read_candidates(spec.task.name, candidates, candidate_idx)
    names = [source.name for source in candidates_read]
    spec = with_candidates(spec, candidates_read, num_envs)
    cfg = spec.config
    with SlowFiles() as slow, settings_kept():
        torch.set_num_threads(1)  # the tensors are small
        context = make_context(spec, slow)
        judge = lint.Judge(context.task, lint.read(lint.cached(spec)))
        rows, shapings = _check_all(context, spec, judge)
        skipped = {row.name: row.error for row in rows if row.status == SKIPPED}
        if set(names) <= set(skipped):
            more = f"; and {len(names) - 1} more of the same kind" if len(names) > 1 else ""
            raise UserError(f"there is nothing to check: {skipped[names[0]]}{more}")
        # a step of the candidates that passed, in parts that fit in memory
        by_name = {row.name: row for row in rows}
        most = max(1, MOST_ENVS // cfg.num_envs_per_candidate)
        for first in range(0, len(shapings), most):
            part = dict(list(shapings.items())[first : first + most])
            _take_a_step(spec, part, by_name)
    judged = str(judge) if any(row.defines_reward for row in rows) else ""
    return CheckResult(rows, context.tracer.on, cfg.num_envs_per_candidate, judged)


def _check_all(
    context: PrepareContext, spec: RunSpec, judge: lint.Judge
) -> tuple[list[CandidateCheck], dict[str, Shaping]]:
    """Return a row for each source, and the shapings of those that can train by name."""
    rows: list[CandidateCheck] = []
    shapings: dict[str, Shaping] = {}
    baselines = {name: baseline.source for name, baseline in context.files.baselines.items()}
    signatures = Known.of(baselines, baselines.get(spec.config.baseline, ""), spec.config.shaper_types)
    for source in spec.sources:
        row = CandidateCheck(source.name, baseline=source.name in BASELINES)
        rows.append(row)
        try:
            with of_candidate(source.file):
                shapings[source.name] = _check(spec, context, judge, source, row)
        except CandidateError as error:
            row.fault = error.fault
            row.status = SKIPPED if row.fault.kind == "nothing asked" else FAILED
        else:
            # a copy trains as well as its original: a search refuses it, a run does not
            copied = None if row.baseline else signatures.fault(source.name, source.source)
            row.notes += [] if copied is None else [copied]
            row.notes += [] if row.baseline else without_effect(source.source, source.file)
            signatures.add(source.name, source.source)
    return rows, shapings


def _check(
    spec: RunSpec, context: PrepareContext, judge: lint.Judge, source: CandidateSource, row: CandidateCheck
) -> Shaping:
    """Fill in the row of a source, and return its shaping without programs. Raises CandidateError."""
    cfg = spec.config
    # the functions, and their faults
    functions = load(source, context.files, cfg.seed).functions
    taken = [kind for kind in functions if row.baseline or cfg.shaper_types is None or kind in cfg.shaper_types]
    row.defines, row.unused = tuple(taken), tuple(kind for kind in functions if kind not in taken)
    with _collect_warnings(row.notes):
        shaping = check_and_trace(source, context, cfg.seed)
    row.obs_dim, row.action_dim = shaping.obs_dim, shaping.action_dim
    # the form of the reward, and functions that are not compiled
    if row.defines_reward:
        remarks: list[str] = []
        if shaping.components:
            try:
                terms = find_terms(recorded_reward(shaping, context.task), shaping.components)
                row.form = str(terms)
                remarks = _remarks(spec, context, source, shaping, terms) if judge.obstacle else []
            except CandidateError as error:
                row.form = f"its reward {error.fault.explanation}"
        row.notes += map(Fault, remarks if judge.obstacle else judge.lines(shaping))
    row.not_compiled = [
        Fault(untraced.reason, untraced.function.file, untraced.line, untraced.function.type)
        for untraced in context.tracer.untraced
        if untraced.function.file == source.file
    ]
    stateful = [call for call in shaping.functions.values() if call.type in taken and call.stateful_line is not None]
    row.notes += map(stateful_note, stateful)
    # without programs: a single call takes less time than compiling
    return replace(make_group(source, shaping, context, cfg.seed).shaping, programs={})


def _remarks(
    spec: RunSpec, context: PrepareContext, source: CandidateSource, shaping: Shaping, terms: Terms
) -> list[str]:
    """Return remarks on the terms of a reward in short episodes with random actions; none if the candidate fails.

    The environments reach from no action to the strongest ones, and begin at different times of the episode.
    """
    seed, spec = spec.config.seed, in_small_simulation(spec)
    shaping = replace(make_group(source, shaping, context, seed).shaping, programs={})
    env = build_env(spec, [shaping], [seed], ENVS)
    env.reset()
    env.progress_buf += torch.linspace(0, max(env.full_episode - STEPS - 1, 0), ENVS, device=env.device).long()
    strength = (torch.arange(ENVS, device=env.device) * 37 % ENVS / (ENVS - 1)).unsqueeze(1)
    rows = []
    for step in range(1, STEPS + 1):
        env.dispatch.components.clear()
        drawn = noise.uniform(seed, step, Purpose.ACTION, ENVS, env.actions.shape[1], env.device)
        env.step(strength * (2.0 * drawn - 1.0))
        rows.append(torch.stack([x[0] for x in env.dispatch.components.rows(0)[1].values()]).cpu())
    env.dispatch.poll()
    values = dict(zip(shaping.components, torch.cat(rows, dim=1).double().numpy()))
    return [] if env.failures else term_remarks(terms.weights, values, "short rollouts")


def _take_a_step(spec: RunSpec, shapings: dict[str, Shaping], rows: dict[str, CandidateCheck]) -> None:
    """Begin episodes, take one step with random actions, and store rewards and failures in the rows."""
    seed, n = spec.config.seed, spec.config.num_envs_per_candidate
    env = build_env(spec, list(shapings.values()), [seed] * len(shapings), n)
    env.reset()
    actions = 2.0 * noise.uniform(seed, 0, Purpose.ACTION, n, env.actions.shape[1], env.device) - 1.0
    env.step(actions.repeat(len(shapings), 1))
    env.dispatch.poll()
    spreads = env.dispatch.components.spreads()
    for g, name in enumerate(shapings):
        row = rows[name]
        if g in env.failures:
            row.status, row.fault = FAILED, env.failures[g]
        else:
            row.reward = spreads[g].pop(TOTAL)
            row.components = spreads[g]


@contextmanager
def _collect_warnings(notes: list[Fault]) -> Iterator[None]:
    """Append the warnings in this block to ``notes`` instead of printing them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    messages = [warning.message for warning in caught]
    notes += dict.fromkeys(x.fault if isinstance(x, CandidateWarning) else Fault(str(x)) for x in messages)


# the result as text


def render_check(result: CheckResult, width: int = 110) -> str:
    """Render a check in lines of at most ``width`` characters; places (FILE:LINE) are not broken."""
    rows = result.rows
    sections = ["\n".join(_table(rows, width, result.compiles))]
    if any(row.reward for row in rows):
        text = f"rewards: one step of {result.num_envs:,} environments with random actions"
        sections.append("\n".join([text, *_rewards(rows, width)]))
    forms = [wrap(f"{row.name}: {row.form}", width, "  ", "    ") for row in rows if row.form]
    if forms:
        sections.append("\n".join(["terms of the rewards:", *forms]))
    sections += [wrap(result.judged, width, then="")] if result.judged else []
    sections += render_by_place(
        "not compiled, and slower for it", [(row.name, row.not_compiled) for row in rows], width
    )
    sections += render_by_place("notes", [(row.name, row.notes) for row in rows], width)
    failed = [(row.name, [row.fault]) for row in rows if row.status == FAILED and row.fault is not None]
    sections += render_by_place(f"failed ({failed_of(dict(failed), (row.name for row in rows))})", failed, width)
    skipped = [row.name for row in rows if row.status == SKIPPED]
    if skipped:
        text = f"skipped, because they define none of the functions asked for: {', '.join(skipped)}"
        sections.append(wrap(text, width, then=""))
    return "\n\n".join(sections) + "\n"


def _table(rows: Sequence[CandidateCheck], width: int, compiles: bool) -> list[str]:
    good = [row.status == OK for row in rows]
    columns = [
        ["candidate", *(f"{row.name} (baseline)" if row.baseline else row.name for row in rows)],
        ["status", *(row.status for row in rows)],
        ["obs", *(str(row.obs_dim) if ok else "" for row, ok in zip(rows, good))],
        ["act", *(str(row.action_dim) if ok else "" for row, ok in zip(rows, good))],
        ["compiled", *(_compiled(row, compiles) if ok else "" for row, ok in zip(rows, good))],
        ["defines", *(_defines(row) for row in rows)],
    ]
    return _lay_out([column for column in columns if any(column[1:])], width)


def _rewards(rows: Sequence[CandidateCheck], width: int) -> list[str]:
    """Return lines for each candidate's reward and its components."""
    lines: list[tuple[str, str, Spread]] = []
    for row in rows:
        if row.reward is not None:
            lines.append((row.name, "reward", row.reward))
            lines += [("", f"  {name}", spread) for name, spread in row.components.items()]
    columns = [
        ["candidate", *(name for name, _, _ in lines)],
        ["", *(part for _, part, _ in lines)],
        ["mean [least, greatest]", *_aligned([spread for _, _, spread in lines])],
    ]
    return _lay_out(columns, width)


def _lay_out(columns: list[list[str]], width: int) -> list[str]:
    """Return a table; its first column is shortened and its last wrapped to stay within ``width``."""
    columns = [list(column) for column in columns]
    others = sum(max(map(len, column)) + len(GAP) for column in columns[1:-1])
    last = max(map(len, columns[-1]))
    room = max(MIN_NAME_WIDTH, width - others - len(GAP) - min(last, 24))
    columns[0] = [shorten(text, room) for text in columns[0]]
    widths = [max(map(len, column)) for column in columns[:-1]]
    indent = sum(widths) + len(GAP) * len(widths)
    lines: list[str] = []
    for cells in zip(*columns):
        head = "".join(cell.ljust(n) + GAP for cell, n in zip(cells, widths))
        wrapped = wrap(cells[-1], max(24, width - indent), then="").splitlines() or [""]
        lines += [f"{head}{wrapped[0]}".rstrip(), *(" " * indent + line for line in wrapped[1:])]
    return [lines[0], "-" * min(width, max(map(len, lines))), *lines[1:]]


def _compiled(row: CandidateCheck, compiles: bool) -> str:
    if not compiles:
        return "off"
    count = len(row.defines)
    return "all" if not row.not_compiled else f"{count - len(row.not_compiled)} of {count}"


def _defines(row: CandidateCheck) -> str:
    names = [name.replace(_PREFIX, "") for name in row.defines]
    return ", ".join([*names, *(f"({name.replace(_PREFIX, '')}: not used)" for name in row.unused)])


def _aligned(spreads: Sequence[Spread | None]) -> list[str]:
    means = [number(spread[0]) if spread else "" for spread in spreads]
    room = max(map(len, means), default=0)
    ranges = [f" [{number(spread[1])}, {number(spread[2])}]" if spread else "" for spread in spreads]
    return [mean.rjust(room) + limits if limits else "" for mean, limits in zip(means, ranges)]
