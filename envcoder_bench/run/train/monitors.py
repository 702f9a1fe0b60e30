"""Messages on problems of a wave, its physics, its fitness and its exploration, each reported once."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.core.words import join_some
from envcoder_bench.env.evaluation import Episodes
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.report.table import CONTACTS_HINT, MOST_NAMED
from envcoder_bench.shaping.contract import Fault

MAX_WARNINGS = 10  # different warnings that are reported; warnings with numbers in them can be numerous
_CHECK = "check its logarithms, roots and divisions"
MOST_GROWTH = 5.0  # a policy that learns at most doubles the standard deviation of its actions


class _Once:
    """The candidates of a wave that have a problem, each named once.

    Args:
        names: the candidate of each group.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names, self._told = list(dict.fromkeys(names)), set[str]()

    def whose(self, affected: Collection[str]) -> str:
        """Return in words which candidates are affected that were not before; empty if there are none."""
        new = [name for name in self._names if name in affected and name not in self._told]
        self._told.update(new)
        everyone = bool(new) and len(self._names) > 1 and set(self._names) <= set(affected)
        return "all candidates" if everyone else join_some(new, MOST_NAMED)


class PhysicsMonitor:
    """Reports dropped contacts and warnings of the simulator once during a wave.

    Args:
        names: the candidate of each group.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._overflowed = _Once(names)
        self._reported: dict[str, int] = {}  # count by a warning's text when it was last reported
        self._warnings: dict[str, int] = {}
        self._blow_ups: dict[str, int] = {}

    def lines(self, overflows: Sequence[int], blow_ups: Sequence[int], warnings: Mapping[str, int]) -> list[str]:
        """Return messages on new problems.

        Args:
            overflows: ``contact_overflows`` so far, by group.
            blow_ups: ``unstable_resets`` so far, by group.
            warnings: number of the simulator's warnings so far, by text.
        """
        self._blow_ups, self._warnings = _total(self._names, blow_ups), dict(warnings)
        lines = []
        whose = self._overflowed.whose(_total(self._names, overflows))
        if whose:
            lines.append(
                f"the simulation dropped contacts of {whose} for lack of room: "
                f"do not trust their results, {CONTACTS_HINT}"
            )
        fresh = [text for text in warnings if text not in self._reported]
        return lines + [self._warning(text, "so far") for text in fresh[: max(0, MAX_WARNINGS - len(self._reported))]]

    def final_lines(self) -> list[str]:
        """Return the totals of warnings that have grown since they were reported."""
        grown = [text for text, count in self._reported.items() if self._warnings[text] > count]
        return [self._warning(text, "in all") for text in grown]

    def _warning(self, text: str, when: str) -> str:
        count = self._reported[text] = self._warnings[text]
        worst = sorted(self._blow_ups, key=lambda name: -self._blow_ups[name])
        counts = join_some([f"{name} {self._blow_ups[name]}" for name in worst], MOST_NAMED)
        where = f"; physics blow-ups: {counts}" if worst else ""
        return f"MuJoCo warned {count} time{'s' * (count > 1)} {when}: {text}{where}"


def _total(names: Sequence[str], counts: Sequence[int]) -> dict[str, int]:
    """Return the sum of the groups' counts by candidate, without zeros."""
    total: Counter[str] = Counter()
    for name, count in zip(names, counts):
        total[name] += count
    return dict(+total)


# a fitness that is NaN or infinity, which is a fault of the task or of the fitness file


def no_fitness(evaluation: GroupedVecTask, episodes: Episodes, group: int) -> Fault | None:
    """Return why a group has no fitness after an evaluation; None if it has one."""
    fitness = episodes.fitness[group]
    faulty = fitness[~torch.isfinite(fitness)]
    if not len(faulty):
        return None
    share = f"{len(faulty)} of {len(fitness)} evaluation episodes"
    return replace(_fitness_fault(evaluation, group), message=f"fitness is {_words(faulty)} in {share}", remedy=_CHECK)


def _words(faulty: Tensor) -> str:
    """Return ``NaN``, ``infinite`` or both for numbers that are not finite."""
    tests = {"NaN": torch.isnan, "infinite": torch.isinf}
    return " or ".join(word for word, test in tests.items() if bool(test(faulty).any()))


class FitnessMonitor:
    """Reports once in a wave for which candidates the fitness is NaN or infinity.

    Args:
        names: the candidate of each group.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names, self._faulty = list(names), _Once(names)

    def lines(self, evaluation: GroupedVecTask, episodes: Episodes, groups: Sequence[int], iteration: int) -> list[str]:
        """Return a message if there are new ones among ``groups``, which have not failed."""
        finite = torch.isfinite(episodes.fitness).all(dim=1).tolist()  # one sync with a CUDA device
        faulty = [g for g in groups if not finite[g]]
        whose = self._faulty.whose({self._names[g] for g in faulty})
        if not whose:
            return []
        numbers = episodes.fitness[faulty]
        numbers = numbers[~torch.isfinite(numbers)]
        fault = replace(
            _fitness_fault(evaluation, faulty[0]),
            message=f"fitness is {_words(numbers)} for {whose} in the evaluation at iteration {iteration}",
            remedy=f"{_CHECK}; a candidate with such an episode in its last evaluation fails",
        )
        return [str(fault)]


def _fitness_fault(evaluation: GroupedVecTask, group: int) -> Fault:
    """Return a fault, without a message, of the function that measures fitness."""
    function = evaluation.dispatch.shapings[group].functions.get("fitness")
    if function is not None:
        return Fault("", function.file, function.line, function.type, "not finite")
    task = type(evaluation.task)
    code = getattr(task.fitness, "__code__", None)
    file_and_line = (task.name, None) if code is None else (code.co_filename, code.co_firstlineno)
    return Fault("", *file_and_line, "fitness", "not finite")


class NoiseMonitor:
    """Reports once in a wave which candidates' policies explore ever more, instead of learning.

    Args:
        names: the candidate of each group.
        action_dims: number of actions of each group.
        params: of the trainer's config; its ``sigma_init`` is what noise is compared with.
    """

    def __init__(self, names: Sequence[str], action_dims: Sequence[int], params: Mapping[str, Any]) -> None:
        self._names, self._action_dims = list(names), list(action_dims)
        value: Any = params
        for key in ("network", "space", "continuous", "sigma_init", "val"):
            value = (value or {}).get(key)  # a trainer may have other keys
        self._first = float(value or 0.0)  # logarithm of the standard deviation
        self._grown = _Once(names)

    def lines(self, entropy: Sequence[float], groups: Sequence[int], iteration: int) -> list[str]:
        """Return a message if there are new ones among ``groups``.

        Args:
            entropy: of the Gaussian policy of each group, nats.
        """
        most = math.log(MOST_GROWTH) + self._first + 0.5 + 0.5 * math.log(2 * math.pi)  # nats for each action
        whose = self._grown.whose({self._names[g] for g in groups if entropy[g] > most * self._action_dims[g]})
        if not whose:
            return []
        return [
            f"the exploration noise of {whose} is more than {MOST_GROWTH:.0f} times the initial one at iteration"
            f" {iteration}, and it should fall as a policy learns: lower train.params.config.entropy_coef if it is"
            " above 0, or train with more environments per candidate"
        ]
