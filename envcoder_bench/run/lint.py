"""The lint of rewards: candidates' rewards on the states that the baselines' and the untrained policies met.

A run records trajectories of these policies in its folder, and keeps them in the cache for ``--check`` of candidates of
the same task and config; those of the fitter human baseline stay.
"""

import contextlib
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from envcoder_bench.compile.terms import find_terms, recorded_reward
from envcoder_bench.core.errors import UserError
from envcoder_bench.core.files import digest, write_atomic, write_shared
from envcoder_bench.core.folders import cache_folder
from envcoder_bench.core.run_log import Prints, counted_prints, muted
from envcoder_bench.core.settings import plain
from envcoder_bench.core.torch_settings import settings_kept
from envcoder_bench.env.grouped_vec_task import keys_read
from envcoder_bench.env.trajectories import Trajectories, pack, unpack
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.run.prepare.environments import in_small_simulation
from envcoder_bench.run.prepare.groups import make_context
from envcoder_bench.run.prepare.run_files import SlowFiles, load_and_assemble
from envcoder_bench.run.spec import CandidateSource, RunSpec
from envcoder_bench.shaping.checking import CPU, TrialState
from envcoder_bench.shaping.contract import CandidateError, Shaping
from envcoder_bench.shaping.copies import differing
from envcoder_bench.shaping.kinds import REWARD, VALUE
from envcoder_bench.shaping.lint import (
    FACTORS,
    Played,
    concordance,
    mostly,
    opposed,
    still_remarks,
    term_remarks,
    unmoved,
    unrelated,
)
from envcoder_bench.shaping.text import defined_kinds
from envcoder_bench.tasks.base import BASELINES, HUMAN, UNSHAPED, UNTRAINED
from envcoder_bench.tasks.contract import TaskSnapshot

log = logging.getLogger(__name__)
EXPLAINS = 0.5  # concordance of episodes' fitness with that of their kept states
MOST = 100  # candidates of a page that are judged
SAME = 1e-3  # root mean square of the difference of two rewards, of the spread of one, below which they are the same
# keys of velocities by their names in IsaacGymEnvs, legged_gym and mjlab; goals have others. The last six numbers of
# bodies' states are velocities, and the last one of dof_state
_VELOCITY = re.compile(r"(^|[_.])(lin|ang|rot)?_?vel(ocity|ocities)?(_[wb])?$")
_BEFORE = ("prev_", "last_")


# the files


def cached(spec: RunSpec) -> Path:
    """Return the file in the cache of trajectories of a task with this config and fitness."""
    fitness = None if spec.fitness is None else spec.fitness.source
    key = repr((spec.task.name, spec.task.digest, plain(spec.config.task), fitness))
    return cache_folder() / "trajectories" / f"{digest(key)}.npz"


def read(path: Path) -> dict[str, Trajectories]:
    """Return the trajectories in a file by policy; none if it is absent or damaged."""
    try:
        return unpack(path.read_bytes())
    except (OSError, ValueError):
        return {}


def add(folder: RunFolder, recorded: Mapping[str, Trajectories]) -> None:
    """Add trajectories to those of a run."""
    if recorded:
        write_atomic(folder.trajectories, pack({**read(folder.trajectories), **recorded}))


def keep(folder: RunFolder, spec: RunSpec) -> None:
    """Keep the trajectories of a complete run in the cache, unless those there are of a fitter human baseline."""
    new, path = read(folder.trajectories), cached(spec)
    if HUMAN not in new or UNTRAINED not in new:
        return
    old = read(path).get(HUMAN)
    if old is not None and old.fitness.mean() > new[HUMAN].fitness.mean():
        return
    with contextlib.suppress(OSError):
        write_shared(path, pack(new))


def fittest(kept: Mapping[str, Trajectories]) -> str:
    """Return the baseline with the greatest fitness."""
    return max((name for name in (HUMAN, UNSHAPED) if name in kept), key=lambda name: kept[name].fitness.mean())


def missing(kept: Mapping[str, Trajectories]) -> str:
    """Return why trajectories do not tell good rewards from bad ones; empty if they do."""
    if UNTRAINED not in kept or not {HUMAN, UNSHAPED} & set(kept):
        return "no trajectories of the baselines and the untrained policy are kept"
    fitter = mostly(kept[UNTRAINED].fitness, kept[fittest(kept)].fitness)
    return "" if fitter else "no baseline was clearly fitter than the untrained policy"


# judging


@dataclass(frozen=True)
class Verdict:
    """What the lint says of a reward: remarks, and what was not judged, with the reason; empty if everything was.

    Attributes:
        same_as: the candidate or baseline whose reward has the same values, with equal other functions; empty if none.
    """

    remarks: list[str] = field(default_factory=list)
    not_judged: str = ""
    same_as: str = ""


@dataclass(frozen=True)
class Judge:
    """Judges rewards on kept trajectories.

    Args:
        task: its contract, constants and drives.
        kept: trajectories by policy.
    """

    task: TaskSnapshot
    kept: Mapping[str, Trajectories]

    @cached_property
    def _of_this_task(self) -> bool:
        keys = {key: spec.shape for key, spec in self.task.contract.state.items()}
        for kept in self.kept.values():
            shapes = {key: x.shape[2:] for key, x in kept.state.items() if key not in ("actions", "progress_buf")}
            if shapes != keys:
                return False
        return True

    @cached_property
    def obstacle(self) -> str:
        """Why no reward can be judged on the trajectories; empty if they can be."""
        other = "the kept trajectories are those of another version of the task"
        return missing(self.kept) if self._of_this_task else other

    def __str__(self) -> str:
        """Say on what rewards are judged, or why not."""
        if self.obstacle:
            return (
                f"not judged: whether a reward opposes the fitness or pays for standing still, because {self.obstacle};"
                " a run of this task and config that trains both baselines keeps trajectories of them"
            )
        fitness = ", ".join(f"{name} {kept.fitness.mean():.3g}" for name, kept in self.kept.items())
        return f"rewards are judged on trajectories that a run of this task has kept, of the fitness {fitness}"

    @cached_property
    def fit(self) -> str:
        """The fitter one of the baselines."""
        return fittest(self.kept)

    @cached_property
    def _states(self) -> dict[str, Tensor]:
        """The states of all policies, and those of the fitter one with other velocities."""
        fit = _flat(self.kept[self.fit])
        blocks = [*map(_flat, self.kept.values()), *(slowed(fit, factor) for factor in FACTORS[1:])]
        actions = [block.pop("actions") for block in blocks]
        width = max(x.shape[1] for x in actions)
        actions = torch.cat([torch.nn.functional.pad(x, (0, width - x.shape[1])) for x in actions])
        return {**{key: torch.cat([block[key] for block in blocks]) for key in blocks[0]}, "actions": actions}

    @cached_property
    def _trial(self) -> TrialState:
        return self._trial_of(self._states)

    @cached_property
    def _mixed(self) -> TrialState:
        """States that nobody met: the keys of each come from different ones, and quantities are twice as large."""
        rng, states = torch.Generator().manual_seed(0), self._states
        mixed = {key: x[torch.randperm(len(x), generator=rng)] for key, x in states.items()}
        return self._trial_of({key: 2 * x if x.is_floating_point() else x for key, x in mixed.items()})

    def _trial_of(self, states: Mapping[str, Tensor]) -> TrialState:
        state = dict(states)
        actions = state.pop("actions")
        return TrialState(state, self.task.constants, replace(self.task, device=CPU), actions)

    def lines(self, shaping: Shaping) -> list[str]:
        """Return what the lint says of a reward beside ``str(self)``."""
        verdict = self(shaping)
        if verdict.not_judged in ("", self.obstacle):
            return verdict.remarks
        return [*verdict.remarks, f"its reward is not judged on trajectories: {verdict.not_judged}"]

    def __call__(self, shaping: Shaping) -> Verdict:
        """Judge the reward of a checked shaping; untrusted code is a program in it."""
        refusal = self.obstacle or self._refusal(shaping)
        if refusal:
            return Verdict(not_judged=refusal)
        try:
            tensors, named = self._called(shaping, self._trial)
        except CandidateError as error:
            return Verdict(not_judged=f"on the kept states it {error.fault.explanation}")
        weights: Mapping[str, float | None] = {}
        with contextlib.suppress(CandidateError):
            weights = find_terms(recorded_reward(shaping, self.task), shaping.components).weights
        components = {name: x.double().numpy() for name, x in named.items()}
        return self._verdict(tensors[VALUE].double().numpy(), components, weights)

    def _refusal(self, shaping: Shaping) -> str:
        """Return why a reward cannot be called on kept states; empty if it can be."""
        function = shaping.functions["reward"]
        if function.stateful_line is not None:
            return "it keeps values between calls"
        if any(patch.file == shaping.file for patch in shaping.patches):
            return "it changes the task's config"
        keys = keys_read([shaping.with_functions({"reward": function})])
        # trajectories hold the actions of the baselines' policies
        widths = {kept.state["actions"].shape[2] for kept in self.kept.values()}
        other = (keys is None or "actions" in keys) and widths != {shaping.action_dim}
        return "its actions have another width than the baselines'" if other else ""

    def _called(self, shaping: Shaping, trial: TrialState) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        trial.action_dim = shaping.action_dim
        with torch.no_grad():
            return trial.results(shaping.functions["reward"], replace(self.task, device=CPU))

    def values(self, shaping: Shaping) -> list[np.ndarray]:
        """Return the values of a reward on kept states, and on those that nobody met; fewer where it has none."""
        values: list[np.ndarray] = []
        # a baseline need not be fitter than the untrained policy: it is enough that there are states of one
        if not self._of_this_task or not {HUMAN, UNSHAPED} & set(self.kept) or self._refusal(shaping):
            return values
        with contextlib.suppress(CandidateError):
            for trial in (self._trial, self._mixed):
                values.append(self._called(shaping, trial)[0][VALUE].double().numpy())
        return values

    def _verdict(
        self, reward: np.ndarray, terms: Mapping[str, np.ndarray], weights: Mapping[str, float | None]
    ) -> Verdict:
        """Judge the values of a reward and its terms on ``_states``."""
        # the terms
        remarks: list[str] = []
        reached = np.concatenate([kept.weight.ravel() > 0 for kept in self.kept.values()])
        seen = {name: x[: len(reached)][reached] for name, x in terms.items()}
        remarks += term_remarks(weights, seen, "the baselines' and the untrained policy's episodes")
        parts = {name: x * terms[name] for name, x in weights.items() if x is not None}

        # the trajectories: blocks of the policies, then those of the fitter one with other velocities
        names = list(self.kept)
        shapes = [self.kept[name].weight.shape for name in [*names, *[self.fit] * (len(FACTORS) - 1)]]
        ends = np.cumsum([times * episodes for times, episodes in shapes])[:-1]

        def blocks(values: np.ndarray) -> list[np.ndarray]:
            return [part.reshape(shape) for part, shape in zip(np.split(values, ends), shapes)]

        def by_factor(values: np.ndarray) -> list[np.ndarray]:
            return [blocks(values)[names.index(self.fit)], *blocks(values)[len(names) :]]

        played = {
            name: Played(name, self.kept[name].weight, self.kept[name].fitness, speed, rewards)
            for name, speed, rewards in zip(names, self._speeds, blocks(reward))
        }
        fit, unfit = played[self.fit], played[UNTRAINED]
        remarks += opposed(fit, unfit)
        remarks += still_remarks(fit, unfit, by_factor(reward), {name: by_factor(x) for name, x in parts.items()})
        if not remarks and self._fitness is not None:
            remarks += unrelated(list(played.values()), blocks(self._fitness)[: len(names)])
            remarks += unmoved(fit, by_factor(reward), by_factor(self._fitness))
        unseen = "whether it pays for standing still, because no key of the state is a velocity"
        return Verdict(remarks, "" if any(speed.any() for speed in self._speeds) else unseen)

    @cached_property
    def _fitness(self) -> np.ndarray | None:
        """The task's fitness of ``_states``; None if it does not explain that of the episodes."""
        if self.task.fitness is None:
            return None
        try:
            values = self.task.fitness(self._states).double().numpy()
        except Exception as error:  # a task's fitness may need more than the state
            log.info("the fitness of kept states is not known: %s", error)
            return None
        means, start = [], 0
        for kept in self.kept.values():
            weight = np.concatenate([kept.weight[:-1], 0 * kept.weight[-1:]])  # the step that ends an episode counts 0
            means.append((values[start : start + weight.size].reshape(weight.shape) * weight).sum(axis=0))
            start += weight.size
        recorded = np.concatenate([kept.fitness for kept in self.kept.values()])
        agrees = concordance(np.concatenate(means), recorded) >= EXPLAINS
        return values if agrees else None

    @cached_property
    def _speeds(self) -> list[np.ndarray]:
        """The speed in each state of each policy; the root of the mean square of the fitter one's is 1."""
        rows = [velocities(_flat(kept)) for kept in self.kept.values()]
        weight = torch.from_numpy(self.kept[self.fit].weight).double().reshape(-1, 1)
        fit = rows[list(self.kept).index(self.fit)]
        usual = ((fit**2 * weight).sum(dim=0) / weight.sum()).sqrt().clamp(min=1e-6)
        speeds = [((x / usual) ** 2).mean(dim=1).sqrt().numpy() for x in rows]
        return [speed.reshape(kept.weight.shape) for speed, kept in zip(speeds, self.kept.values())]


def _flat(played: Trajectories) -> dict[str, Tensor]:
    """Return the states ``(times x episodes, ...)``, with the first one in the place of those after an end."""
    counts = torch.from_numpy(played.weight.ravel() > 0)
    rows = torch.where(counts, torch.arange(len(counts)), int(counts.int().argmax()))
    return {key: torch.from_numpy(x.reshape(-1, *x.shape[2:]))[rows] for key, x in played.state.items()}


def _columns(key: str, x: Tensor) -> slice | None:
    """Return which numbers along the last axis of a key are velocities; None if it has none."""
    if not x.is_floating_point():
        return None
    if _VELOCITY.search(key) and not key.startswith(_BEFORE):
        return slice(None)
    if key == "dof_state" and x.shape[-1] == 2:
        return slice(1, None)
    return slice(7, None) if x.shape[-1:] == (13,) and not key.startswith("initial") else None


def velocities(state: Mapping[str, Tensor]) -> Tensor:
    """Return all velocities in a state, ``(n, k)``; of keys that repeat others, too."""
    cuts = {key: cut for key, x in state.items() if (cut := _columns(key, x)) is not None}
    parts = [state[key][..., cut].reshape(len(state[key]), -1).double() for key, cut in cuts.items()]
    return torch.cat(parts, dim=1) if parts else torch.zeros(len(next(iter(state.values()))), 1).double()


def slowed(state: Mapping[str, Tensor], factor: float) -> dict[str, Tensor]:
    """Return a state with all velocities multiplied, and with what the last step changed (``prev_X`` and ``X``)."""
    new = dict(state)
    for key, x in state.items():
        cut = _columns(key, x)
        if cut is not None:
            new[key] = torch.cat([x[..., : cut.start or 0], x[..., cut] * factor], dim=-1)
    for key, x in state.items():
        now = new.get(key.removeprefix("prev_").removeprefix("last_")) if key.startswith(_BEFORE) else None
        if now is not None and now.shape == x.shape and x.is_floating_point():
            new[key] = factor * x if _VELOCITY.search(key) else now - factor * (now - x)
    return new


# the candidates of a run


def judge_run(folder: RunFolder, spec: RunSpec, names: Sequence[str]) -> dict[str, Verdict]:
    """Judge the rewards of candidates of a complete run, the first ``MOST`` by ``names``.

    Untrusted code is examined in the jail, as by the run. Nothing that goes wrong here is an error.
    """
    left_out = set(names[MOST:])
    sources = [source for source in spec.sources if source.name in names and rewards(source, spec)]
    not_judged = [source.name for source in sources if source.name in left_out]
    verdicts = {name: Verdict(not_judged=f"only {MOST} candidates are") for name in not_judged}
    sources = [source for source in sources if source.name not in left_out]
    if not sources:
        return verdicts
    kept = read(folder.trajectories)
    if not kept:
        return {**verdicts, **{source.name: Verdict(not_judged=missing(kept)) for source in sources}}
    baselines = [source for source in spec.sources if source.name in BASELINES]
    spec = replace(in_small_simulation(spec), sources=(*baselines, *sources))
    values: dict[str, list[np.ndarray]] = {}
    try:
        # the run has shown what candidates print and warn of
        with SlowFiles() as slow, settings_kept(), muted(), counted_prints(Prints(_unseen, _unseen)):
            torch.set_num_threads(1)
            context = make_context(spec, slow)
            judge = Judge(context.task, kept)
            for source in spec.sources:
                with contextlib.suppress(CandidateError):  # the page has it
                    shaping = context.check(load_and_assemble(source, context.files, spec.config.seed))
                    if source.name not in BASELINES:
                        verdicts[source.name] = judge(shaping)
                    values[source.name] = judge.values(shaping)
    except Exception as error:  # a remark must not cost a page
        log.warning("the rewards are not judged: %s", error, exc_info=not isinstance(error, UserError))
    texts = {source.name: source.source for source in spec.sources}
    for name, twin in twins(texts, texts.get(spec.config.baseline, ""), spec.config.shaper_types, values).items():
        remark = (
            f"its reward has the same values as {twin}'s, to {100 * SAME:g} % of their spread, and the rest is the same"
        )
        verdicts[name] = replace(verdicts[name], remarks=[remark, *verdicts[name].remarks], same_as=twin)
    return verdicts


def _unseen(text: str) -> None:
    pass


def twins(
    texts: Mapping[str, str], baseline: str, types: Sequence[str] | None, values: Mapping[str, Sequence[np.ndarray]]
) -> dict[str, str]:
    """Return candidates whose reward is that of an earlier one but for small differences, and whose other code is.

    Args:
        texts: by name.
        baseline: the text that fills in missing functions.
        values: of rewards, by name in the order in which they are compared; baselines have no twins.
    """
    twins: dict[str, str] = {}
    for k, (name, rewards) in enumerate(values.items()):
        for other in list(values)[:k] if rewards and name not in BASELINES else ():
            same = len(rewards) == len(values[other]) and all(map(_same, rewards, values[other]))
            if same and differing(texts[name], texts[other], baseline, types) <= {REWARD}:
                twins.setdefault(name, other)
    return twins


def _same(first: np.ndarray, second: np.ndarray) -> bool:
    """Return whether two rewards are the same; those that are constant on these states say nothing."""
    spread = min(first.std(), second.std())
    return spread > 0.0 and float(np.sqrt(np.mean((first - second) ** 2))) <= SAME * spread


def rewards(source: CandidateSource, spec: RunSpec) -> bool:
    """Return whether a run takes the reward from a candidate."""
    types = spec.config.shaper_types
    return REWARD in defined_kinds(source.source) and (types is None or REWARD in types)
