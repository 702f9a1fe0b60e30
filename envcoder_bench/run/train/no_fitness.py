"""Messages about a fitness that is NaN or infinity, which is a fault of the task or of the fitness file."""

from collections.abc import Sequence

import torch
from torch import Tensor

from envcoder_bench.env.evaluation import Episodes
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.report.physics import join_some

_CHECK = "check its logarithms, roots and divisions"


def no_fitness(evaluation: GroupedVecTask, episodes: Episodes, group: int) -> str | None:
    """Return why a group has no fitness after an evaluation, for ``Result.error``; None if it has one."""
    fitness = episodes.fitness[group]
    faulty = fitness[~torch.isfinite(fitness)]
    if not len(faulty):
        return None
    share = f"{len(faulty)} of {len(fitness)} evaluation episodes"
    return f"{_place(evaluation, group)}: fitness is {_kind(faulty)} in {share}: {_CHECK}"


def _kind(faulty: Tensor) -> str:
    """Return what numbers that are not finite are."""
    kinds = [word for word, own in (("NaN", torch.isnan(faulty)), ("infinite", torch.isinf(faulty))) if bool(own.any())]
    return " or ".join(kinds)


class FitnessMonitor:
    """Reports once in a wave for which candidates the fitness is NaN or infinity.

    Args:
        names: the candidate of each group.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._reported: set[str] = set()

    def lines(self, evaluation: GroupedVecTask, episodes: Episodes, groups: Sequence[int], iteration: int) -> list[str]:
        """Return a message if there are new ones among ``groups``, which have not failed."""
        finite = torch.isfinite(episodes.fitness).all(dim=1).tolist()  # one sync with a CUDA device
        faulty = [g for g in groups if not finite[g]]
        new = [name for name in dict.fromkeys(self._names[g] for g in faulty) if name not in self._reported]
        if not new:
            return []
        self._reported.update(new)
        numbers = episodes.fitness[faulty]
        numbers = numbers[~torch.isfinite(numbers)]
        whose = "all candidates" if len(new) == len(set(self._names)) > 1 else join_some(new)
        return [
            f"{_place(evaluation, faulty[0])}: fitness is {_kind(numbers)} for {whose} in the evaluation at iteration"
            f" {iteration}: {_CHECK}; a candidate with such an episode in its last evaluation fails"
        ]


def _place(evaluation: GroupedVecTask, group: int) -> str:
    """Return file, line and name of the function that measures fitness."""
    function = evaluation.dispatch.shapings[group].functions.get("fitness")
    if function is not None:
        return f"{function.file}:{function.line}: in {function.type}"
    task = type(evaluation.task)
    code = getattr(task.fitness, "__code__", None)
    return f"{task.name}: in fitness" if code is None else f"{code.co_filename}:{code.co_firstlineno}: in fitness"
