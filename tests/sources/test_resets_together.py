"""One reset for the environments of all groups has the bits of a reset for each group, even if the code changes."""

import contextlib
from types import SimpleNamespace

import pytest
import torch

from envcoder_bench.sources.isaacgym_tasks.driver import Resets
from envcoder_bench.sources.isaacgym_tasks.tensors import Row, Unmasked

NUM_ENVS, GROUPS = 8, 4


def resets():
    """Return resets of a task whose code mixes environments where ``mixes`` is set, and the task."""
    task = SimpleNamespace(x=torch.arange(float(NUM_ENVS)), calls=[], mixes=False, mixed=torch.mean)

    def reset(env_ids):
        task.calls.append(len(env_ids))
        task.x[env_ids] = 0.5 * task.x[env_ids] + env_ids
        if task.mixes:
            rows = task.x[env_ids]
            task.x[env_ids] = rows - task.mixed(rows)

    driver = SimpleNamespace(device=torch.device("cpu"), advances=False, reset=reset, observe=lambda: None)
    scene = SimpleNamespace(own_properties=SimpleNamespace(watched=contextlib.nullcontext))
    draws = SimpleNamespace(
        shared=set(), everything=False, lanes=torch.arange(NUM_ENVS) % (NUM_ENVS // GROUPS),
        group_size=NUM_ENVS // GROUPS,
        call=lambda *_: contextlib.nullcontext(), begin_step=lambda _: None, generators_kept=contextlib.nullcontext,
    )  # fmt: skip
    source = SimpleNamespace(running_code=contextlib.nullcontext)
    unmasked = Unmasked(task, {("x", ""): Row(1, (), torch.float32)})
    return Resets(source, driver, scene, draws, unmasked, None), task


MIXED = {
    "mean": torch.mean,
    "first": lambda rows: rows[0],
    "part": lambda rows: rows[:1],
    "last": lambda rows: rows[-1],
}


@pytest.mark.parametrize("mixed", MIXED)
@pytest.mark.parametrize("mixing_from", [0, 9, 1000])
def test_together_as_by_group(mixing_from, mixed, monkeypatch):
    together, task = resets()
    by_group, reference = resets()
    task.mixed = reference.mixed = MIXED[mixed]
    monkeypatch.setattr(by_group, "_watched", -(10**6))
    masks = torch.rand(12, NUM_ENVS, generator=torch.Generator().manual_seed(0)) < 0.7
    for step, mask in enumerate(masks):
        task.mixes = reference.mixes = step >= mixing_from
        for one in (together, by_group):
            one.begin(mask, mask.nonzero().flatten(), step)
        assert torch.equal(task.x, reference.x), step
    assert max(reference.calls) <= NUM_ENVS // GROUPS
    assert (max(task.calls) > NUM_ENVS // GROUPS) == (mixing_from > 0)
    assert mixing_from != 9 or max(task.calls[-GROUPS:]) <= NUM_ENVS // GROUPS  # never together again
