"""Searches by both rules with results of a formula in place of training."""

from argparse import Namespace
from types import SimpleNamespace
from zlib import crc32

import pytest
from measurements import search_rules

from envcoder_bench.results.rows import Result
from envcoder_bench.tasks.base import BASELINE_FILES

ARGUMENTS = dict(task="Cartpole", sim="mujoco_cpu", device="cpu", overrides=[], envs=8, iterations=2)


@pytest.fixture
def runs(monkeypatch):
    """The seeds and numbers of candidates of each run; a candidate's fitness is read from its text and the seed."""
    seen = []

    def train(args, cfg, about, attempts, seed, seeds):
        texts = {a.source: f"c{crc32(a.source.encode()):x}" for mine in attempts for a in mine}
        seen.append((range(seed, seed + seeds), [len(mine) for mine in attempts]))
        rows = [
            Result(name, s, fitness=crc32(f"{name} {s}".encode()) / 2**32)
            for name in [*texts.values(), *BASELINE_FILES]
            for s in range(seed, seed + seeds)
        ]
        result = SimpleNamespace(rows=rows, evaluations=lambda: [], summary={"wall_time": 0.0})
        return result, [{texts[a.source]: a.name for a in mine} for mine in attempts]

    monkeypatch.setattr(search_rules, "_train", train)
    return seen


def test_pairs_are_recorded_as_they_end_and_later_ones_have_other_seeds(runs):
    size = dict(searches=3, together=2, rounds=2, candidates=4, fewer=3, held_out=2)
    first, last = list(search_rules.evolving_searches(Namespace(**ARGUMENTS, **size)))
    assert (first["searches"], last["searches"]) == (2, 3)
    for rule in ("earlier", "present"):
        assert len(last[rule]) == 3 and first[rule] == last[rule][:2]
    used = [seed for seeds, _ in runs for seed in seeds]
    assert used == [*range(2 * (2 + 5 + 2))]
    # new candidates, those that train again, validation, and the chosen ones, of the third pair alone
    assert [counts for _, counts in runs[4:]] == [[4, 3], [5, 6], [0, 5], [1, 1]]
    assert last["trainings"] == {"earlier": 4 + 5 + 4 + 15, "present": 3 + 6 + 4 + 25 + 15}


def test_recorded_searches_begin_with_the_seeds_of_the_record(runs):
    path = search_rules.Path(__file__).parents[1] / "starts/cartpole_swingup.jsonl"
    args = Namespace(**{**ARGUMENTS, "task": "CartpoleSwingup"}, recorded=str(path), seeds=11, batch=4, runs=3)
    earlier, present = search_rules.recorded_searches(args)
    assert [[*seeds] for seeds, _ in runs] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]] and runs[0][1] == [12]
    assert earlier["trainings"] < present["trainings"] and earlier["means"] == present["means"]
    # eight seeds are used, so that three are held out
    held_out = search_rules.recorded_searches(Namespace(**{**vars(args), "seeds": 9}))
    with pytest.raises(search_rules.UserError, match="--seeds 9: a search uses 8"):
        next(held_out)
