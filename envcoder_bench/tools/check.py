"""The check of candidates without training: load, check and trace them as a run does, and take one step with them."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from envcoder_bench.core import noise
from envcoder_bench.core.errors import UserError
from envcoder_bench.report.check import FAILED, SKIPPED, CandidateCheck, render_check
from envcoder_bench.run.inputs import Candidates, read_candidates, resolve, with_candidates
from envcoder_bench.run.prepare.environments import brings_its_simulation, build_env
from envcoder_bench.run.prepare.groups import PrepareContext, check_and_trace, make_context, make_group
from envcoder_bench.run.prepare.rollouts import rollout
from envcoder_bench.run.prepare.run_files import load
from envcoder_bench.run.prepare.slow import SlowFiles
from envcoder_bench.run.spec import CandidateSource, RunSpec
from envcoder_bench.shaping.combination import NotDivisible, find_combination, term_remarks
from envcoder_bench.shaping.contract import CandidateError, Shaping, none_asked
from envcoder_bench.shaping.kinds import REWARD
from envcoder_bench.shaping.outputs import TOTAL
from envcoder_bench.tasks.base import BASELINES

MOST_ENVS = 65_536  # of all candidates that take the step together


@dataclass
class CheckResult:
    """The result of a check.

    Attributes:
        rows: one per candidate, baselines first.
        compiles: whether functions are compiled, with this config on this machine.
        num_envs: number of environments of each candidate in the step.
    """

    rows: list[CandidateCheck]
    compiles: bool
    num_envs: int

    @property
    def passed(self) -> bool:
        """Whether every candidate that is not skipped can train."""
        return all(row.status != FAILED for row in self.rows)

    def __str__(self) -> str:
        return render_check(self.rows, 110, self.compiles, self.num_envs)


def check_candidates(
    task: str,
    overrides: Sequence[str] = (),
    candidates: Candidates = None,
    candidate_idx: str | Sequence[int] | None = None,
    num_envs: int | None = None,
) -> CheckResult:
    """Check candidates against a task without training. The arguments are those of a run.

    Args:
        task: a task's name, its folder or ``module:Class``.
        overrides: ``key=value`` for the config.
        candidates, candidate_idx: as of ``envcoder_bench.evaluate``.
        num_envs: total number of environments, instead of ``num_envs_per_candidate``.

    Raises:
        UserError: bad input, or no candidate defines a requested function.
    """
    spec = resolve(task, overrides)
    candidates_read = read_candidates(spec.task.name, candidates, candidate_idx)
    names = [source.name for source in candidates_read]
    spec = with_candidates(spec, candidates_read, num_envs)
    cfg = spec.config
    with SlowFiles() as slow, _one_thread():
        context = make_context(spec, slow)
        rows, shapings = _check_all(context, spec)
        skipped = {row.name: row.error for row in rows if row.status == SKIPPED}
        if set(names) <= set(skipped):
            more = f"; and {len(names) - 1} more of the same kind" if len(names) > 1 else ""
            raise UserError(f"there is nothing to check: {skipped[names[0]]}{more}")
        by_name = {row.name: row for row in rows}
        most = max(1, MOST_ENVS // cfg.num_envs_per_candidate)
        for first in range(0, len(shapings), most):
            part = dict(list(shapings.items())[first : first + most])
            _take_a_step(spec, part, by_name)
    return CheckResult(rows, context.tracer.on, cfg.num_envs_per_candidate)


def _check_all(context: PrepareContext, spec: RunSpec) -> tuple[list[CandidateCheck], dict[str, Shaping]]:
    """Return a row for each source, and the shapings of those that can train by name."""
    cfg = spec.config
    rows: list[CandidateCheck] = []
    shapings: dict[str, Shaping] = {}
    for source in spec.sources:
        row = CandidateCheck(source.name, baseline=source.name in BASELINES)
        rows.append(row)
        try:
            functions = load(source, context.files, cfg.seed).functions
            taken = [kind for kind in functions if row.baseline or cfg.shaper_types is None or kind in cfg.shaper_types]
            row.defines, row.unused = tuple(taken), tuple(kind for kind in functions if kind not in taken)
            with _collected(row.notes):
                shaping = check_and_trace(source, context, cfg.seed)
        except CandidateError as error:
            row.status, row.error = (SKIPPED if none_asked(error) else FAILED), str(error)
            error.__traceback__ = None  # its frames keep tensors alive
            continue
        row.obs_dim, row.action_dim = shaping.obs_dim, shaping.action_dim
        if REWARD in taken and shaping.components and not row.baseline:
            row.form, remarks = _divided(spec, context, source, shaping)
            row.notes += remarks
        refused = [one for one in context.tracer.untraced if one.function.file == source.file]
        row.not_compiled = [str(one) for one in refused]
        for kind in taken:
            line = next((own.stateful_line for own in shaping.functions.values() if own.type == kind), None)
            if line is not None:
                place = f"{source.file}:{line}: in {kind}"
                row.notes.append(f"{place}: keeps values between calls, which --resume cannot restore")
        # without programs, because one call takes less time than compiling
        own = make_group(source, shaping, context.unshaped, context.files, cfg.seed)
        shapings[source.name] = replace(own.shaping, programs={})
    return rows, shapings


def _divided(
    spec: RunSpec, context: PrepareContext, source: CandidateSource, shaping: Shaping
) -> tuple[str, list[str]]:
    """Return how a reward is made of its components, and remarks on these; empty if the candidate fails."""
    if not brings_its_simulation(spec.task):
        spec = spec.changed(sim="mujoco_cpu", device="cpu")
    try:
        reward, terms = rollout(spec, context, source, shaping)
        how = find_combination(reward, terms)
    except NotDivisible as error:
        return str(error), []
    except CandidateError:  # the step shows it
        return "", []
    return str(how), term_remarks(how, terms)


def _take_a_step(spec: RunSpec, shapings: dict[str, Shaping], rows: dict[str, CandidateCheck]) -> None:
    """Begin episodes, take one step with random actions, and store rewards and failures in the rows."""
    seed, n = spec.config.seed, spec.config.num_envs_per_candidate
    env = build_env(spec, list(shapings.values()), [seed] * len(shapings), n)
    env.reset()
    actions = 2.0 * noise.uniform(seed, 0, noise.ACTION, n, env.actions.shape[1], env.device) - 1.0
    env.step(actions.repeat(len(shapings), 1))
    env.dispatch.poll()
    spreads = env.dispatch.component_spreads()
    for g, name in enumerate(shapings):
        row = rows[name]
        if g in env.failures:
            row.status, row.error = FAILED, str(env.failures[g])
        else:
            row.reward = spreads[g].pop(TOTAL)
            row.components = spreads[g]


@contextmanager
def _collected(texts: list[str]) -> Iterator[None]:
    """Append the warnings in this block to ``texts`` instead of printing them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    texts += dict.fromkeys(str(one.message) for one in caught)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Limit torch to one thread, because the tensors are small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
