"""Saving and restoring the rows of environments that are not reset, and refreshes of unchanged tensors."""

from types import SimpleNamespace

import pytest
import torch

from envcoder_bench.sources.isaacgym_tasks import tensors
from envcoder_bench.sources.isaacgym_tasks.driver import NoResets
from envcoder_bench.sources.isaacgym_tasks.gym_proxy import GymProxy

N = 4
MASK = torch.tensor([True, False, True, False])


def task():
    """Tensors as tasks have them: views of one storage, several rows per environment, dicts, an expanded row."""
    dofs = torch.arange(N * 3 * 2.0).view(N * 3, 2)
    return SimpleNamespace(
        dof_state=dofs,
        dof_pos=dofs.view(N, 3, 2)[..., 0],
        obs=torch.rand(N, 5),
        ends=torch.zeros(N, dtype=torch.bool),
        still=torch.ones(N, 2),
        shared=torch.ones(1, 2).expand(N, 2),
        states={"cube": torch.rand(N, 7)},
    )


def change_all(own):
    own.dof_pos[:] = -1.0
    own.dof_state[:, 1] = 7.0
    own.obs = torch.full((N, 5), 9.0)  # replaced
    own.ends |= True
    own.states["cube"].mul_(2.0)


def test_restore_resets_unmasked_rows_in_place():
    own = task()
    rows = tensors.rows_of(own, N)
    unmasked = tensors.Unmasked(own, rows)
    for _ in range(2):  # copies are used again
        first = {place: x for place, x in tensors.tensors_of(own)}
        before = {place: x.clone() for place, x in first.items()}
        unmasked.save()
        change_all(own)
        after = {place: x.clone() for place, x in tensors.tensors_of(own)}
        unmasked.restore(MASK)
        for place, x in tensors.tensors_of(own):
            assert x is first[place]
            mask = MASK.repeat_interleave(len(x) // N)
            assert torch.equal(x[mask], after[place][mask]) and torch.equal(x[~mask], before[place][~mask])


@pytest.mark.parametrize("copy", [tensors.copy_all, tensors.copy_at_once])
def test_tensor_that_requires_gradients_does_not_affect_others(copy, monkeypatch):
    """Some rewards of TorchScript require gradients."""
    monkeypatch.setattr(tensors, "copy_all", copy)
    own = SimpleNamespace(reward=torch.rand(N, requires_grad=True) * 2.0, obs=torch.rand(N, 3))
    unmasked = tensors.Unmasked(own, tensors.rows_of(own, N))
    for _ in range(2):
        unmasked.save()
        own.obs += 1.0
        unmasked.restore(MASK)
    assert not own.obs.requires_grad


@pytest.mark.parametrize("copy", [tensors.copy_all, tensors.copy_at_once])
@pytest.mark.parametrize("overlap", [False, True])
def test_copies_are_equivalent_to_sequential_copies(copy, overlap):
    a, b, c = torch.zeros(3), torch.ones(3), torch.full((3,), 2.0)
    strided, whole = torch.zeros(3, 2)[:, 0], torch.zeros(3, dtype=torch.int64)
    copy([a, b, strided, whole], [b if overlap else c, c, c, c])
    assert a.tolist() == ([1.0] * 3 if overlap else [2.0] * 3)
    assert b.tolist() == strided.tolist() == whole.tolist() == [2.0] * 3


class Gym:
    """A gym whose refreshes are counted."""

    def __init__(self):
        self.roots, self.forces, self.refreshed = torch.zeros(N, 13), torch.zeros(N, 3), []

    def acquire_actor_root_state_tensor(self, sim):
        return self.roots

    def acquire_net_contact_force_tensor(self, sim):
        return self.forces

    def refresh_actor_root_state_tensor(self, sim):
        self.refreshed.append("roots")

    def refresh_net_contact_force_tensor(self, sim):
        self.refreshed.append("forces")

    def set_actor_root_state_tensor(self, sim, states):
        pass

    def get_frame_count(self, sim):
        return 0

    def simulate(self, sim):
        pass


def test_only_tensors_that_may_have_changed_are_refreshed():
    gym, sim = Gym(), SimpleNamespace()
    proxy = GymProxy(gym)
    roots, forces = proxy.acquire_actor_root_state_tensor(sim), proxy.acquire_net_contact_force_tensor(sim)

    def refreshed():
        gym.refreshed.clear()
        proxy.refresh_actor_root_state_tensor(sim)
        proxy.refresh_net_contact_force_tensor(sim)
        return gym.refreshed

    assert refreshed() == ["roots", "forces"]
    proxy.get_frame_count(sim)
    assert refreshed() == []
    proxy.simulate(sim)
    assert refreshed() == ["roots", "forces"]
    proxy.set_actor_root_state_tensor(sim, roots)
    assert refreshed() == ["roots"]  # forces stay those of the last simulate
    forces.view(-1)[0] = 1.0  # a view of the tensor
    assert refreshed() == ["forces"]
    proxy.changed()
    assert refreshed() == ["roots", "forces"]
    version = roots._version
    proxy.simulate(sim)
    proxy.refresh_actor_root_state_tensor(sim)
    assert roots._version > version


def test_tensor_on_another_device_is_copied_only_after_a_change():
    own = SimpleNamespace(friction=torch.ones(4, 1))
    rows = tensors.rows_of(own, 4)
    # the device meta stands for CUDA: it takes copies, and counts them as changes
    mirror = tensors.Mirror(own, {"friction": ("friction", "")}, rows, 4, torch.device("meta"))
    state = mirror.state["friction"]
    assert state.device.type == "meta"

    def copies(syncs):
        before = state._version
        for _ in range(syncs):
            mirror.sync()
        return state._version - before

    assert copies(3) == 1
    own.friction[2] = 0.5
    assert copies(2) == 1
    own.friction = torch.zeros(4, 1)
    assert copies(2) == 1


def test_zeros_know_that_none_is_to_be_reset_until_they_are_written(monkeypatch):
    asked = []
    plain = torch.Tensor.nonzero
    monkeypatch.setattr(torch.Tensor, "nonzero", lambda self, **options: (asked.append(1), plain(self, **options))[1])
    x = NoResets.like(torch.ones(4, dtype=torch.int64))
    assert x.nonzero(as_tuple=False).squeeze(-1).tolist() == [] and len(x.nonzero(as_tuple=True)[0]) == 0
    assert not asked and torch.equal(x, torch.zeros(4, dtype=torch.int64)) and type(x + 1) is torch.Tensor
    x[2] = 1
    assert x.nonzero(as_tuple=False).flatten().tolist() == [2] and asked
