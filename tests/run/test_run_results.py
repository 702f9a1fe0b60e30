"""Rows of results.csv from the episodes of an evaluation."""

import math
from types import SimpleNamespace

import pytest
import torch

from envcoder_bench.env.evaluation import Episodes
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.run.train.rows import trained


class Scored:
    """A task with a fitness."""

    def fitness(self, state):
        raise NotImplementedError

    def ends(self):
        return {}


LINE = Scored.fitness.__code__.co_firstlineno


def results(task, fitness, complete=True):
    """Rows of groups with these episodes' fitness."""
    fitness = torch.tensor(fitness)
    counts = {name: torch.zeros(len(fitness)) for name in ("unstable_resets", "training_episodes", "contact_overflows")}
    session = SimpleNamespace(
        env=SimpleNamespace(stats=SimpleNamespace(last_return=torch.zeros(len(fitness)), **counts)),
        failures=dict,
        complete=complete,
        half_step=None,
        spec=RunSpec.of(compose_config(task)),
        groups=[SimpleNamespace(name=f"c{g}", seed=0) for g in range(len(fitness))],
        episodes=Episodes(fitness, torch.ones_like(fitness)),
        env_steps=lambda group: 1,
        evaluation=SimpleNamespace(
            dispatch=SimpleNamespace(shapings=[SimpleNamespace(functions={})] * len(fitness)), task=Scored()
        ),
    )
    return trained(session)


def rows(task, fitness):
    """Fitness and interval of groups with these episodes' fitness."""
    return [(own.fitness, own.fitness_ci_low, own.fitness_ci_high) for own in results(task, fitness)]


def test_success_rates_at_their_bounds_have_exact_intervals():
    never, always, some = rows("FrankaCubeStack", [[0.0] * 64, [1.0] * 64, [0.0, 1.0] * 32])
    width = 1 - 0.025 ** (1 / 64)
    assert never == (0.0, 0.0, pytest.approx(width)) and always == (1.0, pytest.approx(1 - width), 1.0)
    assert some[1:] == pytest.approx((0.5 - 0.1259, 0.5 + 0.1259), abs=1e-3)  # Student's t


def test_shares_of_time_at_their_bounds_have_no_interval_of_width_0():
    """A pole that stayed up in 64 episodes may fall in one of the next: at most so often as a success rate."""
    whole, nearly = rows("Cartpole", [[1.0] * 64, [1.0] * 63 + [0.99]])
    assert whole == (1.0, pytest.approx(0.025 ** (1 / 64)), 1.0) and nearly[1] < nearly[0] < 1.0


@pytest.mark.parametrize(
    "spoiled, words",
    [
        ([math.nan], "NaN in 1 of 64"),
        ([math.inf, -math.inf], "infinite in 2 of 64"),
        ([math.nan, 0.0, math.inf], "NaN or infinite in 2 of 64"),
    ],
)
@pytest.mark.parametrize("task", ["Cartpole", "FrankaCubeStack"])
def test_episode_without_a_finite_fitness_leaves_the_row_without_one(task, spoiled, words):
    fitness = [[*spoiled, *[1.0] * (64 - len(spoiled))], [1.0] * 64]
    bad, good = results(task, fitness)
    assert (bad.status, good.status, good.error) == ("failed", "ok", "")
    assert math.isnan(bad.fitness) and math.isnan(bad.fitness_ci_low) and not bad.measured and good.fitness == 1.0
    assert f"test_run_results.py:{LINE}: in fitness: fitness is {words} evaluation episodes; check" in bad.error
    during = results(task, fitness, complete=False)[0]
    assert during.status == "running" and not during.measured and during.error == bad.error
