"""The description of a run: its task, its files, and its config with types, bounds and descriptions.

The defaults and comments of cfg/config.yaml are those of the fields here, which a test compares.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import BeforeValidator, Field, field_validator

from envcoder_bench.core.errors import near_matches
from envcoder_bench.core.settings import (
    Count,
    Expected,
    Keys,
    Names,
    Number,
    Numbers,
    Settings,
    Tree,
    as_tuple,
    key,
    plain,
    words_for,
)
from envcoder_bench.shaping.kinds import ALIASES, SHAPER_TYPES
from envcoder_bench.sources.registry import find_spec, title_of

if TYPE_CHECKING:  # they import torch, which --help does not need
    from envcoder_bench.shaping.variants import Variant
    from envcoder_bench.tasks.spec import TaskSpec

FILE = "cfg/config.yaml"
AUTO = "auto"
PARAMS = "train.params."  # prefix of a trainer's keys


class CandidateSource(NamedTuple):
    """A candidate's name, its file (for messages), the file's text, and its values of keys of the trainer's config.

    ``variant`` is what the run made it of, with ``--terms`` or ``--sweep``; None for all other candidates.
    """

    name: str
    file: str
    source: str
    overrides: Mapping[str, float] = Settings({})
    variant: "Variant | None" = None

    def entry(self) -> dict[str, Any]:
        """Return the candidate's entry in a run's config.yaml."""
        entry = {"name": self.name, "file": self.file}
        return {**entry, "overrides": plain(self.overrides)} if self.overrides else entry


class Evaluation(Keys):
    num_envs: Count = key(32, "parallel evaluation environments of each candidate and seed")
    points: Annotated[Count, Field(le=10_000)] = key(
        10, "evaluations spread over training; the last one, of the final policy, ranks"
    )
    point_steps: Count | None = key(
        300, "control steps of each episode in the others; null, or a fitness that is a sum: full episodes"
    )
    final_episodes: Count = key(64, "episodes of each candidate and seed in the final evaluation")
    record: bool = key(False, "write the fitness of every evaluation episode to episodes.csv")
    half_step: bool = key(False, "measure final policies with half the physics step, too: docs/reading_a_run.md#hacked")


class Wandb(Keys):
    enabled: bool = key(False, "--wandb")
    project: Annotated[str, Field(min_length=1), Expected("a name")] = key("envcoder-bench", "the project of the runs")
    entity: Annotated[str, Expected("a name")] | None = key(None, "a user or team; null: your default")
    group: Annotated[str, Expected("a name")] | None = key(None, "null: the name of the run folder")
    mode: Literal["online", "offline"] | None = key(None, "online or offline; null: as WANDB_MODE says, else online")
    tags: Annotated[Names, Expected("a list of words")] = key((), "words that are found in W&B's table")


class Race(Keys):
    enabled: bool = key(False, "--race")
    rungs: (
        Annotated[
            Annotated[tuple[Any, ...], BeforeValidator(as_tuple)], Expected("a list of iterations, such as [100, 200]")
        ]
        | None
    ) = key(None, "iterations at which candidates are stopped, e.g. [100, 200]; null: 10, 20, 40 and 70 % of all")
    keep: Annotated[Number, Field(gt=0, le=1)] = key(
        0.5, "this share of the candidates goes on from each rung; 1: stop only what is surely out of reach"
    )


def without_aliases(names: Sequence[str], key: str = "shaper_types") -> tuple[str, ...]:
    """Return the shaper types of these names, the value of a key or flag.

    Raises ValueError with near matches for an unknown type.
    """
    there_are = f"there are {', '.join(SHAPER_TYPES)}"
    if not names:
        raise ValueError(f"{key} is empty; {there_are}")
    for name in names:
        if ALIASES.get(name, name) not in SHAPER_TYPES:
            hint = near_matches(name, [*SHAPER_TYPES, *ALIASES])
            raise ValueError(f"unknown shaper type '{name}'{hint}; {there_are}")
    return tuple(ALIASES.get(name, name) for name in names)


class RunConfig(Keys):
    """The config of a run: cfg/config.yaml with overrides, and the YAML files of its task."""

    file: ClassVar[str] = FILE

    task: Tree = Field(description="the task's YAML, cfg/task/<Task>.yaml")
    train: Tree = Field(description="the trainer's YAML in the schema of rl_games, cfg/train/<Task>PPO.yaml")
    task_source: str | None = key(
        None, "--task sets it: where a task from outside the package is, a folder or module:Class"
    )
    shaper_types: Annotated[Names, Expected("a list such as [compute_reward]")] | None = key(
        None, "which functions come from the candidates; null: all that they define"
    )
    baseline: Literal["human", "unshaped"] = key("human", "fills in for absent functions: human or unshaped")
    baselines: bool = key(True, "also evaluate both baselines")
    fitness: Annotated[str, Expected("a file with compute_fitness")] | None = key(
        None, "a file with compute_fitness(state_dict) to rank by, docs/candidates.md; null: the task's own fitness"
    )
    fitness_bounds: (
        Annotated[Numbers, Field(min_length=2, max_length=2), Expected("two numbers, the least first, such as [0, 1]")]
        | None
    ) = key(None, "the file's least and greatest fitness of an episode, such as [0, 1]; intervals are cut to them")
    num_envs_per_candidate: Count = key(256, "environments of each candidate and seed")
    learning_iterations: Annotated[Count, Field(le=10_000_000)] = key(
        500, "PPO iterations: one rollout of horizon_length steps and one update each"
    )
    seeds: Count | Literal["auto"] = key(
        "auto",
        "replicas of each candidate, with seeds seed, seed + 1, ...; auto: 1 on a CPU, 1 to 5"
        " on a GPU, docs/reading_a_run.md",
    )
    seed: Annotated[int, Field(ge=0)] = key(0, "the first seed")
    sim: str = key("auto", "auto, mujoco_cpu or mujoco_warp; auto: Warp where there is a CUDA device")
    device: Annotated[str, Expected("auto, cpu or cuda:N")] = key("auto", "auto, cpu or cuda:N")
    isolate: Literal["process"] | None = key(
        None, "process: each candidate and seed trains in a process of its own, one after the other: docs/isaacgym.md"
    )
    devices: (
        Annotated[
            str | int | Annotated[tuple[str | int, ...], BeforeValidator(as_tuple)],
            Expected("all, GPU numbers such as 0,1, or cpu:N"),
        ]
        | None
    ) = key(
        None,
        'several devices: all, GPU numbers such as "0,1", or cpu:N; null: the one that device names; docs/scale.md',
    )
    ray: Annotated[str, Expected("auto or HOST:PORT")] | None = key(
        None, "address of a Ray cluster whose GPUs are used: auto or HOST:PORT; docs/scale.md"
    )
    max_memory: Annotated[str | Number, Expected("a size such as 24GiB")] | None = key(
        None, "memory of the device to use, e.g. 24GiB; what does not fit trains in waves; null: what is free"
    )
    compile_shapers: bool = key(
        True, "trace candidate functions and run them as compiled kernels; false: as PyTorch calls"
    )
    untrusted: bool = key(
        False, "candidates that nobody has read: they run in a confined process alone, see docs/jail.md"
    )
    deterministic: bool = key(
        False, "on CUDA the same bits from the same command, alone or among others: slower, see docs/reading_a_run.md"
    )
    profile: bool = key(False, "measure where the time goes; changes no result")
    evaluation: Evaluation = key(Evaluation(), "deterministic episodes in the task's own unshaped environment")
    wandb: Wandb = key(
        Wandb(), "Weights & Biases: a run for each candidate and seed, in one group: docs/reading_a_run.md"
    )
    race: Race = key(Race(), "stop candidates that can no longer win before the end of the training: docs/racing.md")
    save_state: bool = key(
        True, "keep the state of training at the end, from which --extend trains on; false: it begins again"
    )
    checkpoint_minutes: Annotated[Number, Field(ge=0)] = key(2, "a killed run loses at most this much")
    log_points: Annotated[Count, Field(le=100_000)] = key(200, "rows of curves.csv per candidate and seed, at most")

    @field_validator("shaper_types")
    @classmethod
    def _without_aliases(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if names is None else without_aliases(names)

    @field_validator("fitness_bounds")
    @classmethod
    def _ordered(cls, bounds: tuple[Number, ...] | None) -> tuple[Number, ...] | None:
        if bounds is not None and not (-math.inf < bounds[0] < bounds[1] < math.inf):
            raise ValueError(f"fitness_bounds must be {words_for(cls.model_fields['fitness_bounds'])}, got {[*bounds]}")
        return bounds

    @property
    def address(self) -> str:
        """The value for ``--task``: the name of the task, or where it is."""
        return self.task_source or self.task.name

    @property
    def task_title(self) -> str:
        """The task in titles: its name, or the value for ``--task`` if its source titles tasks so."""
        return title_of(self.address, self.task.name)

    @property
    def params(self) -> dict[str, Any]:
        """``train.params`` as plain data, as trainers take it."""
        return plain(self.train["params"])


@dataclass(frozen=True)
class RunSpec:
    """A run: resolved once, where a command or a process begins, and passed on.

    Attributes:
        task: the task.
        sources: the candidates, baselines included.
        fitness: the file whose ``compute_fitness`` evaluations measure; None for the task's own fitness.
    """

    task: "TaskSpec"
    config: RunConfig
    sources: tuple[CandidateSource, ...] = ()
    fitness: CandidateSource | None = None

    @classmethod
    def of(
        cls, config: RunConfig, sources: Sequence[CandidateSource] = (), fitness: CandidateSource | None = None
    ) -> "RunSpec":
        """Find the task of a config. Raises ValueError as ``find_spec``."""
        return cls(find_spec(config.address), config, tuple(sources), fitness)

    def try_code(self) -> None:
        """Run the task's code once with this config, which may take a while. Raises ValueError if it fails."""
        if self.task.try_code is not None:
            self.task.try_code(self.config.task)

    def changed(self, **keys: Any) -> "RunSpec":
        """Return the run with other values of keys of its config."""
        return replace(self, config=self.config.model_copy(update=keys))
