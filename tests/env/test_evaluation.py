"""Episodes of an evaluation against numbers computed by hand: an environment whose episodes are given."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.env.evaluation import Episodes, run_episodes, run_point
from envcoder_bench.env.trajectories import Recorder

FULL = 4  # control steps of an episode
# the step, from 1, at which each environment of two groups ends its episode: by its terminal, or by unstable physics
ENDS, UNSTABLE = torch.tensor([1, 3, 9, 9]), torch.tensor([9, 9, 2, 9])


class Given:
    """An environment with given ends, whose fitness is 1, 2, 4, 8 at the steps of an episode, plus its index."""

    def __init__(self, reduction: str = "mean", cuts: bool = False) -> None:
        self.layout, self.num_envs, self.full_episode = GroupLayout(2, 2), 4, FULL
        self.device = torch.device("cpu")
        unstable = torch.zeros(4, dtype=torch.bool)
        self.task = SimpleNamespace(fitness_reduction=reduction, unstable=unstable, finish_step=lambda: None)
        self.task.ends = lambda: {"odd": torch.arange(4) % 2 == 1, "at step 3": torch.full((4,), self.played == 3)}
        self.dispatch = SimpleNamespace(has_fitness=False, terminal=self._terminal, recheck=self._recheck)
        self.cuts, self.played, self.begun, self.checked = cuts, 0, [], []
        self.active: list[list[bool]] = []
        self.step_count = 0

    def begin_all(self, first_step: int) -> Tensor:
        self.step_count, self.played = first_step, 0
        self.begun.append(first_step)
        return torch.zeros(4, 1)

    def advance(self, actions: Tensor, active: Tensor) -> None:
        self.active.append(active.tolist())
        self.played += 1
        self.task.unstable = self.played == UNSTABLE

    def _terminal(self, step: int, active: Tensor) -> Tensor:
        return self.played >= ENDS

    def _recheck(self) -> None:
        self.checked.append(self.played)

    def task_fitness(self) -> Tensor:
        return 2.0 ** (self.played - 1) + torch.arange(4.0)

    def cut_short(self, ended: Tensor) -> Tensor:
        return torch.zeros_like(ended)

    def begin_episodes(self, which: Tensor) -> None:
        assert not which.any()

    def observe(self, active: Tensor) -> Tensor:
        return torch.zeros(4, 1)


def play(env: Any, **options: Any) -> Episodes:
    return run_episodes(env, lambda obs: obs, **{"rounds": 1, "first_step": 0, **options})


def test_a_step_on_which_an_episode_ends_early_and_those_after_it_count_nothing() -> None:
    env = Given("sum")
    episodes = play(env)
    # no step; steps 1 and 2 with index 1; step 1 with index 2, then unstable; all steps with index 3
    assert episodes.fitness.tolist() == [[0.0, 1 + 2 + 2.0], [1 + 2.0, 1 + 2 + 4 + 8 + 4 * 3.0]]
    assert episodes.length.tolist() == [[0.0, 2.0], [1.0, 4.0]]
    assert env.active == [
        [True] * 4,
        [False, True, True, True],
        [False, True, False, True],
        [False, False, False, True],
    ]


def test_the_conditions_that_hold_where_an_episode_ends_early_are_noted() -> None:
    episodes = play(Given())
    assert episodes.ended is not None
    assert episodes.ended.tolist() == [[[False, False], [True, True]], [[False, False], [False, False]]]
    assert episodes.first(1).ended.tolist() == [[[False, False]], [[False, False]]]  # type: ignore[union-attr]


def test_a_mean_is_over_the_full_episode_or_over_the_steps_played_of_one_that_has_not_ended() -> None:
    assert play(Given()).fitness.tolist() == [[0.0, 5 / FULL], [3 / FULL, 27 / FULL]]
    part = play(Given(), steps=2)  # the first ended, and counts as of the full episode; the third is unstable at step 2
    assert part.fitness.tolist() == [[0.0, 5 / 2], [3 / FULL, (3 + 6) / 2]]
    assert part.length.tolist() == [[0.0, 2.0], [1.0, 2.0]] and part.course is None
    env: Any = Given()
    full, point = run_point(env, lambda obs: obs, 0, 0, 2)
    assert torch.equal(full.fitness, play(Given()).fitness)
    assert torch.equal(point.fitness, part.fitness) and torch.equal(point.length, part.length)


def test_rounds_follow_each_other_with_steps_of_their_own_and_the_first_is_checked() -> None:
    env = Given()
    episodes = play(env, rounds=3, first_step=100, check_at=1)
    assert env.begun == [100, 100 + FULL, 100 + 2 * FULL] and env.checked == [1]
    assert episodes.fitness.shape == (2, 6) and torch.equal(episodes.fitness[:, 4:], episodes.fitness[:, :2])


def test_course_has_the_mean_fitness_and_the_share_that_goes_on_at_each_step() -> None:
    means = play(Given("sum")).step_means(FULL)
    assert means[0].tolist() == [[2 / 2, 3 / 2, 0.0, 0.0], [1 / 2, 1 / 2, 0.0, 0.0]]
    assert means[1].tolist() == [[(3 + 4) / 2, 5 / 2, 7 / 2, 11 / 2], [1.0, 1 / 2, 1 / 2, 1 / 2]]


@pytest.mark.parametrize("ends", [[1, 1, 1, 1], [2, 1, 2, 1]])
def test_nothing_is_played_after_the_last_episode_has_ended(ends: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.ENDS", torch.tensor(ends))
    env = Given("sum")
    episodes = play(env)
    assert env.played == max(ends) and episodes.step_means(FULL)[..., max(ends) :].eq(0.0).all()


def test_recorded_states_stand_for_the_steps_of_their_episode() -> None:
    x, device, task = torch.zeros(2), torch.device("cpu"), SimpleNamespace(refresh_state=lambda: None)
    env: Any = SimpleNamespace(layout=GroupLayout(1, 2), views=[{"x": x}], full_episode=FULL, device=device, task=task)
    recorder, active = Recorder(env, {0: "mine"}), torch.tensor([True, True])
    for t in range(FULL):
        x.fill_(t)
        ended = torch.tensor([t == 1, False])
        recorder.step(t, active, ended)
        active = active & ~ended
    recorded = recorder.result(torch.tensor([[0.25, 1.0]]))["mine"]
    assert recorded.weight.sum(axis=0).tolist() == [1.0 + 1.0, FULL]  # that of an early end is a single step
    assert recorded.state["x"][-1].tolist()[0] == 1.0 and recorded.weight[-1].tolist() == [1.0, 0.0]
    assert recorded.fitness.tolist() == [0.25, 1.0]
