"""The protocol of score-model: tracks, budgets and tasks, as data. docs/score_model.md explains each choice.

A change of anything in this file raises VERSION, because scores of two versions cannot be compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from envcoder_bench.core.errors import UserError, near_matches
from envcoder_bench.shaping.kinds import CANDIDATE, KINDS, SHAPER_TYPES

VERSION = "0.4"
# in every score, so that a model that was trained on published scores and their transcripts can be told
CANARY = "envcoder-bench-score canary 6f1d0c5e-7c1b-4a58-9a0e-2f6f0f1b8f5d"
HUMAN, UNSHAPED = REFERENCE_MODELS = ("human", "unshaped")  # as --llm: no model is asked
GOALS, REFERENCES = Path(__file__).parent / "goals", Path(__file__).parent / "references"

# the functions that a model may write; those of "reward" are absent when the policy is judged
TRACKS: Mapping[str, Sequence[str]] = {
    "reward": tuple(name for name in SHAPER_TYPES if KINDS[name].judged_with != CANDIDATE),
    "all": SHAPER_TYPES,
}
CONTROLLER_TRACK = "all"  # a policy may be judged with a controller that the model wrote


@dataclass(frozen=True)
class Budget:
    """How many candidates a search may train."""

    rounds: int
    candidates: int


ONE_SHOT = "one-shot"
BUDGETS = {ONE_SHOT: Budget(1, 16), "search": Budget(5, 16)}
AGENT = "agent"  # the third budget: a search by an agent
AGENT_MINUTES, AGENT_TOKENS = 60, 200_000  # limits of a session, and of its calls with their answers
RUNS = 5  # searches of each task
VALIDATION_SEEDS = 3  # of each search: they choose its winner
HELD_OUT_SEEDS = 5  # drawn when the last search has ended: they score the winners
EPISODES = 256  # of each policy that is scored


@dataclass(frozen=True)
class ScoredTask:
    """A task of the protocol.

    Attributes:
        address: the task, as of ``--task``.
        description: the behaviour, as the model reads it.
        goal: file with ``compute_fitness``; None for the task's own fitness.
        overrides: ``key=value`` for its runs: the size of a training, as it was calibrated.
        tells: what the task separates.
        base: of an unseen task, the one that it is made of.
    """

    name: str
    address: str
    description: str
    tells: str
    goal: Path | None = None
    overrides: tuple[str, ...] = ()
    base: str = ""

    @property
    def fitness_of(self) -> str:
        """The shipped task whose fitness it has; empty for a goal of its own."""
        return "" if self.goal is not None else self.base or self.address

    @property
    def shipped_references(self) -> list[Path]:
        """References that everybody can read. Their copies do not win."""
        return [file for file in (REFERENCES / f"{self.name}_bank.py",) if file.is_file()]

    @property
    def references(self) -> list[Path]:
        """Candidates that are known to be good, which are trained beside the winners."""
        beside = [] if self.goal is None else [self.goal.with_name(f"{self.name}_fitness.py")]
        return [*self.shipped_references, *(file for file in beside if file.is_file())]


def _size(envs: int, iterations: int) -> tuple[str, str]:
    return f"num_envs_per_candidate={envs}", f"learning_iterations={iterations}"


_SPEED = "as fast as possible, without falling"
TASKS = {
    task.name: task
    for task in (
        ScoredTask(
            "CartpoleSwingup",
            "CartpoleSwingup",
            "swing the pole up and keep it upright, with the cart in its range",
            "a reward that pays for what leads to the goal, and not for the goal alone",
            overrides=_size(128, 120),
        ),
        ScoredTask(
            "Ant",
            "Ant",
            f"run to the target {_SPEED}",
            "terms that help a gait against those that hold it back",
            overrides=_size(128, 200),
        ),
        ScoredTask(
            "AnymalSpeed",
            "Anymal",
            f"run straight ahead {_SPEED}, whatever the commands say",
            "a goal that the human reward does not have",
            GOALS / "anymal_speed.py",
            _size(256, 200),
        ),
        ScoredTask(
            "AnymalSideways",
            "Anymal",
            f"walk to the left {_SPEED}, whatever the commands say",
            "a goal for which the human reward is of little use",
            GOALS / "anymal_sideways.py",
            _size(256, 200),
        ),
        ScoredTask(
            "AnymalTurn",
            "Anymal",
            f"turn left on the spot {_SPEED}, whatever the commands say",
            "a goal for which the human reward is of little use",
            GOALS / "anymal_turn.py",
            _size(256, 200),
        ),
        *(
            ScoredTask(
                robot,
                f"mjlab:Mjlab-Velocity-Flat-Unitree-{robot}",
                "walk with the commanded velocities, upright and without falling",
                "terms that help a gait against those that hold it back, on a robot that people have",
                overrides=_size(1024, 300),
            )
            for robot in ("Go1", "G1")
        ),
    )
}
SMOKE, STANDARD, MJLAB, UNSEEN = "smoke", "standard", "mjlab", "unseen"  # sets of tasks
SETS = {
    SMOKE: ("CartpoleSwingup",),
    STANDARD: ("Ant", "AnymalSpeed", "AnymalSideways", "AnymalTurn"),
    MJLAB: ("Go1", "G1"),
}


def named_tasks(names: Sequence[str]) -> list[ScoredTask]:
    """Return the tasks of names and sets, each once. Raises UserError for an unknown name."""
    wanted = [each for name in names for each in SETS.get(name, (name,))]
    for name in wanted:
        if name not in TASKS:
            choices = [*SETS, UNSEEN, *TASKS]
            raise UserError(f"--tasks {name} is unknown{near_matches(name, choices)}; there are {', '.join(choices)}")
    return [TASKS[name] for name in dict.fromkeys(wanted)]
