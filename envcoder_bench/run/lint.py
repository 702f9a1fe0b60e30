"""The lint of rewards: candidates' rewards on the states that the baselines' and the untrained policies met.

A run records trajectories of these policies in its folder, and keeps them in the cache for ``--check`` of candidates of
the same task and config; those of the fitter human baseline stay.
"""

import contextlib
import hashlib
import logging
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.files import write_atomic
from envcoder_bench.core.folders import cache_folder
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
from envcoder_bench.shaping.combination import NotDivisible, find_combination
from envcoder_bench.shaping.contract import CandidateError, Shaping
from envcoder_bench.shaping.kinds import ALIASES, REWARD, VALUE
from envcoder_bench.shaping.lint import FACTORS, Played, mostly, opposed, still_remarks, term_remarks
from envcoder_bench.shaping.text import definitions
from envcoder_bench.tasks.base import HUMAN, UNSHAPED, UNTRAINED
from envcoder_bench.tasks.contract import TaskSnapshot

log = logging.getLogger(__name__)
MOST = 100  # candidates of a page that are judged
# keys of velocities by their names in IsaacGymEnvs, legged_gym and mjlab; goals have others. The last six numbers of
# bodies' states are velocities, and the last one of dof_state
_VELOCITY = re.compile(r"(^|[_.])(lin|ang|rot)?_?vel(ocity|ocities)?(_[wb])?$")
_BEFORE = ("prev_", "last_")


# the files


def key_of(spec: RunSpec) -> str:
    """Return the key of trajectories in the cache: the task, its config, and the fitness."""
    fitness = None if spec.fitness is None else spec.fitness.source
    parts = (spec.task.name, spec.task.digest, plain(spec.config.task), fitness)
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogateescape")).hexdigest()


def cached(spec: RunSpec) -> Path:
    """Return the file of a task's trajectories in the cache."""
    return cache_folder() / "trajectories" / f"{key_of(spec)}.npz"


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
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_suffix(f".{os.getpid()}")
        scratch.write_bytes(folder.trajectories.read_bytes())
        os.replace(scratch, path)


# judging


@dataclass(frozen=True)
class Verdict:
    """What the lint says of a reward: remarks, and what was not judged, with the reason; empty if everything was."""

    remarks: list[str] = field(default_factory=list)
    not_judged: str = ""


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
    def obstacle(self) -> str:
        """Why no reward can be judged on the trajectories; empty if they can be."""
        if UNTRAINED not in self.kept or not self._baselines:
            return "no trajectories of the baselines and the untrained policy are kept"
        keys = {key: spec.shape for key, spec in self.task.contract.state.items()}
        for one in self.kept.values():
            shapes = {key: x.shape[2:] for key, x in one.state.items() if key not in ("actions", "progress_buf")}
            if shapes != keys:
                return "the kept trajectories are those of another version of the task"
        return ""

    @cached_property
    def unlearnt(self) -> str:
        """Why the trajectories do not tell good from bad; empty if they do."""
        if mostly(self.kept[UNTRAINED].fitness, self.kept[self.fit].fitness):
            return ""
        return "no baseline was clearly fitter than the untrained policy"

    def __str__(self) -> str:
        """Say on what rewards are judged, or why not."""
        missing = self.obstacle or self.unlearnt
        if missing:
            return (
                f"not judged: whether a reward opposes the fitness or pays for standing still, because {missing}; a run"
                " of this task and config that trains both baselines keeps trajectories of them"
            )
        fitness = ", ".join(f"{name} {one.fitness.mean():.3g}" for name, one in self.kept.items())
        return f"rewards are judged on trajectories that a run of this task has kept, of the fitness {fitness}"

    @property
    def _baselines(self) -> list[str]:
        return [name for name in (HUMAN, UNSHAPED) if name in self.kept]

    @cached_property
    def fit(self) -> str:
        """The fitter one of the baselines."""
        return max(self._baselines, key=lambda name: float(self.kept[name].fitness.mean()))

    @cached_property
    def _blocks(self) -> list[tuple[int, int]]:
        """The times and episodes of each block of states: those of the policies, and of the fitter one with slower
        velocities."""
        shapes = {name: one.weight.shape for name, one in self.kept.items()}
        return [*shapes.values(), *[shapes[self.fit]] * (len(FACTORS) - 1)]

    @cached_property
    def _trial(self) -> TrialState:
        policies = [_flat(one) for one in self.kept.values()]
        fit = _flat(self.kept[self.fit])
        blocks = [*policies, *(slowed(fit, factor) for factor in FACTORS[1:])]
        width = max(block["actions"].shape[1] for block in blocks)
        actions = [block.pop("actions") for block in blocks]
        actions = torch.cat([torch.nn.functional.pad(x, (0, width - x.shape[1])) for x in actions])
        state = {key: torch.cat([block[key] for block in blocks]) for key in blocks[0]}
        return TrialState(state, self.task.constants, replace(self.task, device=CPU), actions)

    def lines(self, shaping: Shaping) -> list[str]:
        """Return what the lint says of a reward beside ``str(self)``."""
        verdict = self(shaping)
        if verdict.not_judged in ("", self.obstacle, self.unlearnt):
            return verdict.remarks
        return [*verdict.remarks, f"its reward is not judged on trajectories: {verdict.not_judged}"]

    def __call__(self, shaping: Shaping) -> Verdict:
        """Judge the reward of a checked shaping; untrusted code is a program in it."""
        function = shaping.functions["reward"]
        if self.obstacle:
            return Verdict(not_judged=self.obstacle)
        if function.stateful_line is not None:
            return Verdict(not_judged="it keeps values between calls")
        if shaping.patches:
            return Verdict(not_judged="it changes the task's config")
        keys = keys_read([replace(shaping, functions={"reward": function})])
        widths = {one.state["actions"].shape[2] for one in self.kept.values()}
        if (keys is None or "actions" in keys) and widths != {shaping.action_dim}:
            return Verdict(not_judged="its actions have another width than the baselines'")
        trial = self._trial
        trial.action_dim = shaping.action_dim
        try:
            with torch.no_grad():
                tensors, named = trial.results(function, replace(self.task, device=CPU))
        except CandidateError as error:
            return Verdict(not_judged=f"on the kept states it {error.message}")
        return self._verdict(tensors[VALUE].double().numpy(), {k: x.double().numpy() for k, x in named.items()})

    def _verdict(self, reward: np.ndarray, terms: Mapping[str, np.ndarray]) -> Verdict:
        count = len(self.kept)
        reached = np.concatenate([one.weight.ravel() > 0 for one in self.kept.values()])
        remarks, parts = [], {}
        with contextlib.suppress(NotDivisible):
            seen = {name: x[: len(reached)][reached] for name, x in terms.items()}
            how = find_combination(reward[: len(reached)][reached], seen)
            remarks += term_remarks(how, seen, "the baselines' and the untrained policy's episodes")
            parts = {} if how.form != "sum" else {name: how.weights[name] * terms[name] for name in how.used}
        if self.unlearnt:
            return Verdict(remarks, self.unlearnt)
        rewards, named = self._split(reward), {name: self._split(x) for name, x in parts.items()}
        speeds = self._speeds
        played = {
            name: Played(name, one.weight, one.fitness, speed, own)
            for (name, one), speed, own in zip(self.kept.items(), speeds, rewards)
        }
        fit, unfit = played[self.fit], played[UNTRAINED]
        at = list(self.kept).index(self.fit)

        def variants(values: Sequence[np.ndarray]) -> list[np.ndarray]:
            return [values[at], *values[count:]]

        remarks += opposed(fit, unfit)
        remarks += still_remarks(
            fit, unfit, variants(rewards), {name: variants(values) for name, values in named.items()}
        )
        return Verdict(remarks)

    def _split(self, values: np.ndarray) -> list[np.ndarray]:
        ends = np.cumsum([times * episodes for times, episodes in self._blocks])[:-1]
        return [part.reshape(shape) for part, shape in zip(np.split(values, ends), self._blocks)]

    @cached_property
    def _speeds(self) -> list[np.ndarray]:
        """The speed in each state of each policy, 1 on average for the fitter one."""
        rows = [velocities(_flat(one)) for one in self.kept.values()]
        fit = rows[list(self.kept).index(self.fit)]
        weight = torch.from_numpy(self.kept[self.fit].weight).double().reshape(-1, 1)
        usual = ((fit**2 * weight).sum(dim=0) / weight.sum()).sqrt().clamp(min=1e-6)
        speeds = [((x / usual) ** 2).mean(dim=1).sqrt().numpy() for x in rows]
        return [speed.reshape(one.weight.shape) for speed, one in zip(speeds, self.kept.values())]


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
    parts = [x.reshape(len(x), -1) if cut == slice(None) else x[..., cut].reshape(len(x), -1)
             for key, x in state.items() if (cut := _columns(key, x)) is not None]  # fmt: skip
    n = len(next(iter(state.values())))
    return torch.cat([x.double() for x in parts], dim=1) if parts else torch.zeros(n, 1, dtype=torch.float64)


def slowed(state: Mapping[str, Tensor], factor: float) -> dict[str, Tensor]:
    """Return a state with all velocities multiplied, and with what the last step changed (``prev_X`` and ``X``)."""
    new = dict(state)
    for key, x in state.items():
        cut = _columns(key, x)
        if cut is not None:
            new[key] = x * factor if x.dim() == 1 else torch.cat([x[..., : cut.start or 0], x[..., cut] * factor], -1)
    for key, x in state.items():
        now = new.get(key.removeprefix("prev_").removeprefix("last_")) if key.startswith(_BEFORE) else None
        if now is not None and now.shape == x.shape and x.is_floating_point():
            new[key] = factor * x if _VELOCITY.search(key) else now - factor * (now - x)
    return new


def judge_run(folder: RunFolder, spec: RunSpec, names: Sequence[str]) -> dict[str, Verdict]:
    """Judge candidates of a complete run by their names, those that define a reward.

    Untrusted code is examined in the jail, as by the run. Nothing that goes wrong here is an error.
    """
    sources = [source for source in spec.sources if source.name in set(names[:MOST]) and rewards(source, spec)]
    if not sources:
        return {}
    kept = read(folder.trajectories)
    spec = replace(
        in_small_simulation(spec), sources=tuple(s for s in spec.sources if s in sources or s.name not in names)
    )
    try:
        with SlowFiles() as slow, settings_kept(), warnings.catch_warnings():
            torch.set_num_threads(1)
            warnings.simplefilter("ignore")
            context = make_context(spec, slow)
            judge = Judge(context.task, kept)

            def verdict(source: CandidateSource) -> Verdict:
                try:
                    shaping = context.check(load_and_assemble(source, context.files, spec.config.seed))
                    return judge(shaping)
                except CandidateError as error:
                    return Verdict(not_judged=str(error))

            return {source.name: verdict(source) for source in sources}
    except Exception as error:  # a remark must not cost a page
        log.warning("the rewards are not judged: %s", error, exc_info=not isinstance(error, UserError))
        return {}


def rewards(source: CandidateSource, spec: RunSpec) -> bool:
    """Return whether a run takes the reward from a candidate."""
    types = spec.config.shaper_types
    kinds = {ALIASES.get(name, name) for name in definitions(source.source).names}
    return REWARD in kinds and (types is None or REWARD in types)
