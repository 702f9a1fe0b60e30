"""Code for some environments does the same with masks as with indices, in fixed shapes."""

import contextlib

import pytest
import torch
from recorded_ops import capture

from envcoder_bench.core.errors import UserError
from envcoder_bench.sources.term_tasks.draws import drawing
from envcoder_bench.sources.term_tasks.graphs.env_ids import EnvIds, FixedShapes, plain_indices

N = 7


def write_rows(env_ids, x):
    x["a"][env_ids] = x["b"][env_ids] * 2.0


def write_number(env_ids, x):
    x["a"][env_ids] = 0.0


def write_number_to_a_column(env_ids, x):
    x["a"][env_ids, 1] = 0.5


def write_number_to_columns(env_ids, x):
    x["a"][env_ids, 1:] = 2


def write_columns(env_ids, x):
    x["a"][env_ids[:, None], torch.tensor([2, 0])] = x["b"][env_ids][:, :2]


def write_a_column(env_ids, x):
    x["a"][env_ids, 1] = x["b"][env_ids, 0] + 1.0


def add_in_place(env_ids, x):
    x["a"][env_ids] += 1.0


def write_part(env_ids, x):
    x["a"][env_ids[:, None], torch.tensor([0, 1]), ...] = 3.0


def write_on_another_axis(env_ids, x):
    x["c"][:, env_ids] = 0.0


def write_where_chosen(env_ids, x):
    forward = env_ids[x["flag"][env_ids]]
    if len(forward) > 0:
        x["a"][forward, 0] = x["b"][forward, 0].abs().clamp(min=0.3)


def write_where_found(env_ids, x):
    found = x["flag"].nonzero(as_tuple=False).flatten()
    x["a"][found, 2] = x["b"][found, 1]


def write_where_any(env_ids, x):
    if x["flag"].any():
        found = x["flag"].nonzero().squeeze(-1)
        x["a"][found] = 1.0


def write_on_a_grid(env_ids, x):
    rows, columns = torch.meshgrid(env_ids.to(torch.int), torch.tensor([0, 2], dtype=torch.int), indexing="ij")
    x["a"][rows, columns] = x["b"][rows, columns] - 1.0


def write_a_view(env_ids, x):
    x["a"][:, 1:][env_ids] = 5.0


CODE = [value for name, value in list(globals().items()) if name.startswith(("write_", "add_"))]


def inputs():
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(N, 3, generator=generator) for _ in range(2))
    return {"a": a, "b": b, "c": torch.ones(2, N), "flag": torch.rand(N, generator=generator) < 0.5}


@pytest.mark.parametrize("code", CODE, ids=lambda code: code.__name__)
@pytest.mark.parametrize("chosen", [[], [3], [0, 2, 6], list(range(N))], ids=len)
@pytest.mark.parametrize("around", [contextlib.nullcontext, drawing])
def test_masks_are_as_indices(code, chosen, around):
    by_index, by_mask = inputs(), inputs()
    mask = torch.zeros(N, dtype=torch.bool)
    mask[chosen] = True
    code(torch.tensor(chosen, dtype=torch.int64), by_index)
    with around(), FixedShapes(N):
        code(EnvIds.of(mask), by_mask)
    assert all(torch.equal(by_index[key], by_mask[key]) for key in by_index)


@pytest.mark.parametrize("around", [contextlib.nullcontext, drawing])
def test_shapes_do_not_depend_on_the_mask(around):
    with around(), FixedShapes(N):
        ids = EnvIds.of(torch.zeros(N, dtype=torch.bool))
        assert len(ids) == N and isinstance(ids, torch.Tensor) and inputs()["a"][ids].shape == (N, 3)
        assert torch.rand(len(ids[inputs()["flag"]])).shape == (N,)
        few = torch.zeros(N, dtype=torch.bool)
        assert len(few.nonzero().flatten()) == len(few.nonzero(as_tuple=False).squeeze(-1)) == N
        assert len(torch.nonzero(few)) == len(torch.where(few)[0]) == len(few.nonzero(as_tuple=True)[0]) == N


def test_on_a_device_means_of_some_environments_wait_for_nothing_and_other_uses_have_their_rows(monkeypatch):
    x, means = inputs(), []
    expected = x["a"][x["flag"]]
    monkeypatch.setattr(FixedShapes, "asks", False)

    def log():
        with FixedShapes(N):
            means.extend((torch.mean(x["a"][x["flag"]]), x["a"][:, 1][x["flag"]].mean()))

    capture(log)  # raises where it would wait
    assert [mean.item() for mean in means] == pytest.approx([expected.mean().item(), expected[:, 1].mean().item()])
    with FixedShapes(N):
        rows = x["a"][x["flag"]]
        assert len(rows) == len(expected) and rows.shape == expected.shape and torch.equal(2.0 * rows, 2.0 * expected)


def test_views_of_memory_are_written():
    base = torch.zeros(N, 2)
    mask = torch.arange(N) < 2
    with FixedShapes(N):
        base.view(N, 2)[:, 1][EnvIds.of(mask)] = 1.0
    assert base[:, 1].tolist() == [1.0] * 2 + [0.0] * 5


def test_indices_on_the_cpu_and_means_are_of_the_environments_that_are_meant():
    mask, x = torch.arange(N) < 2, torch.arange(3.0 * N).view(N, 3)
    expected, written = x[mask].mean(), x.clone()
    with FixedShapes(N):
        ids = EnvIds.of(mask)
        assert torch.mean(x[ids]) == expected and (2.0 * x[ids]).shape == x.shape
        written[ids.cpu()[:, None], torch.tensor([0, 2])] = -1.0
        with plain_indices():
            assert len(mask.nonzero()) == 2 < len(ids)
    assert torch.equal(written[2:], x[2:]) and written[:2].tolist() == [[-1.0, 1.0, -1.0], [-1.0, 4.0, -1.0]]


@pytest.mark.parametrize(
    "use",
    [
        lambda ids, x: x.index_fill_(0, ids, 1.0),
        lambda ids, x: x.scatter_(0, ids.unsqueeze(1), 1.0),
        lambda ids, x: x[ids % 2],
        lambda ids, x: ids.tolist(),
        lambda ids, x: ids[2:],
        lambda ids, x: ids.numpy(),
    ],
)
def test_what_may_write_into_others_is_refused_by_name(use):
    with pytest.raises(UserError, match="events/mine calls"), FixedShapes(N, "events/mine"):
        use(EnvIds.of(torch.ones(N, dtype=torch.bool)), torch.zeros(N, 3))
