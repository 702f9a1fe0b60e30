"""Random numbers of mjlab's code: one row per environment, a function of seed, lane, step, term and call."""

import pytest
import torch

from envcoder_bench.core.errors import UserError
from envcoder_bench.sources.term_tasks.draws import TermStream, drawing, rename_stream


def drawn(seeds, lanes, step=3, name="events/push"):
    seeds, lanes = torch.tensor(seeds), torch.tensor(lanes)
    n = len(lanes)
    with TermStream(name, seeds, lanes, step), drawing():
        first = torch.rand(n, 2) * 3.0
        x = torch.empty(n).uniform_(-1.0, 1.0)
        normal = torch.randn_like(x)
        level = torch.randint(0, 5, (n,))
        rename_stream("events/other")
        other = torch.rand(n, 2) * 3.0
    return torch.cat([first, x[:, None], normal[:, None], level[:, None].float(), other], dim=1)


def test_a_lane_draws_the_same_in_every_group_of_a_seed_and_alone():
    alone = drawn([0, 0, 0], [0, 1, 2])
    groups = drawn([0, 0, 0, 5, 5, 5, 0, 0, 0], [0, 1, 2] * 3)
    assert torch.equal(groups[:3], alone) and torch.equal(groups[6:], alone)
    assert not torch.equal(groups[3:6], alone)


def test_the_numbers_of_a_seed_stay_so_that_runs_of_other_versions_can_be_repeated():
    expected = [2.934695, 1.552118, -0.414146, 1.395393, 4.0, 2.148252, 1.783928]
    assert drawn([7], [2], step=5)[0].tolist() == pytest.approx(expected, abs=2e-6)


def test_steps_terms_and_calls_differ():
    rows = drawn([0], [0])[0]
    assert len({*rows.tolist()}) == len(rows)
    assert not torch.equal(drawn([0], [0], step=4), drawn([0], [0]))
    assert not torch.equal(drawn([0], [0], name="events/x")[:, :4], drawn([0], [0])[:, :4])
    assert torch.equal(drawn([0], [0], name="events/x")[:, 5:], drawn([0], [0])[:, 5:])  # the renamed term


def test_draws_that_are_not_one_row_per_environment_are_refused_by_name():
    seeds = torch.zeros(4, dtype=torch.int64)
    refused = pytest.raises(UserError, match="events/push draws random numbers for 1 rows")
    with refused, TermStream("events/push", seeds, torch.arange(4), 0), drawing():
        torch.rand(1)
