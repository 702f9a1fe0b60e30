"""Dropped contacts are counted in the affected environments only."""

import pytest
import torch
from backends import Backend, both, everywhere, with_tasks

from envcoder_bench.sim import Simulator, make_simulator
from envcoder_bench.sources.registry import find_spec, task_names

BOXES = 12  # each rests on four points
BOX = '<body name="b{0}" pos="{0} 0 0.1"><freejoint/><geom type="box" size=".1 .1 .1" contype="0"/></body>'
SCENE = (
    '<mujoco>{room}<option integrator="implicitfast"/><worldbody><geom type="plane" size="9 9 1" conaffinity="0"/>'
    '<body name="slider" pos="0 3 1"><joint name="slide" type="slide"/><geom size=".1" contype="0"/></body>{boxes}'
    "</worldbody>{custom}</mujoco>"
)


def scene(backend: Backend, folder, small: bool, num_envs: int = 4) -> Simulator:
    """Boxes on the ground, with room for all their contacts or, if ``small``, for few."""
    room = custom = ""
    if small and backend.name == "mujoco_cpu":
        room = '<size memory="30K"/>'  # of each environment
    elif small:
        custom = '<custom><numeric name="max_contacts" data="4"/></custom>'  # and a slot for each of 12 pairs
    path = folder / "boxes.xml"
    boxes = "".join(BOX.format(k) for k in range(BOXES))
    path.write_text(SCENE.format(room=room, custom=custom, boxes=boxes))
    return make_simulator(backend.name, path, num_envs, 0.02, 4, backend.device)


def lift(sim: Simulator, resting: list[int]) -> None:
    """Rest this many boxes of each environment on the ground, and put the others in the air."""
    states = sim.object_states.clone()
    states[:, :, 7:] = 0.0
    for env, count in enumerate(resting):
        states[env, :, 2] = 50.0
        states[env, :count, 2] = 0.0999
    sim.write(everywhere(sim), object_states=states)


def play(sim: Simulator, steps: int) -> None:
    for _ in range(steps):
        sim.step(torch.zeros_like(sim.dof_pos))


@both
def test_large_enough_buffers_count_no_overflow(backend: Backend, tmp_path) -> None:
    sim = scene(backend, tmp_path, small=False)
    lift(sim, [BOXES, 1, 0, BOXES])
    play(sim, 5)
    assert sim.contact_overflows.tolist() == [0] * 4 and sim.contact_overflows.dtype == torch.int32
    assert (sim.object_states[0, :, 2] > 0.09).all()


@both
def test_too_small_buffers_count_steps_of_affected_environments(backend: Backend, tmp_path) -> None:
    sim = scene(backend, tmp_path, small=True)
    lift(sim, [8, 1, 0, 1])  # 40 contacts: the pool of MuJoCo Warp holds 48, but no world may have 32
    play(sim, 5)
    assert sim.contact_overflows.tolist() == [5, 0, 0, 0]
    lift(sim, [0, 1, 0, 8])
    play(sim, 3)
    assert sim.contact_overflows.tolist() == [5, 0, 0, 3]
    sim.contact_overflows.zero_()
    play(sim, 1)
    assert sim.contact_overflows.tolist() == [0, 0, 0, 1]


@both
def test_overflow_of_a_shared_pool_is_counted_in_every_environment(backend: Backend, tmp_path) -> None:
    sim = scene(backend, tmp_path, small=True)
    lift(sim, [BOXES, 1, 0, 1])  # 56 contacts
    play(sim, 4)
    shared = backend.name == "mujoco_warp"
    assert sim.contact_overflows.tolist() == ([4] * 4 if shared else [4, 0, 0, 0])


@both
def test_unstable_environments_are_reset_and_not_counted_as_overflows(backend: Backend, tmp_path) -> None:
    sim = scene(backend, tmp_path, small=True)
    lift(sim, [8, 0, 0, 0])
    sim.step(torch.full_like(sim.dof_pos, torch.nan))
    assert sim.unstable.all() and not sim.contact_overflows.any()


@both
def test_overflow_count_is_part_of_the_state(backend: Backend, tmp_path) -> None:
    sim, other = scene(backend, tmp_path, small=True), scene(backend, tmp_path, small=True)
    lift(sim, [8, 1, 0, 1])
    play(sim, 2)
    other.set_state(sim.get_state())
    play(other, 1)
    assert other.contact_overflows.tolist() == [3, 0, 0, 0]


@both
def test_overflows_are_counted_and_not_printed(backend: Backend, tmp_path, monkeypatch, capfd) -> None:
    sim = scene(backend, tmp_path, small=True)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    capfd.readouterr()
    lift(sim, [BOXES] * 4)
    play(sim, 3)
    assert capfd.readouterr() == ("", "") and not list((tmp_path / "empty").iterdir())
    assert sim.contact_overflows.tolist() == [3] * 4 and sim.engine_warnings == {}


@pytest.mark.slow
@pytest.mark.parametrize("name, backend", with_tasks(task_names()))
def test_shipped_robots_do_not_overflow_their_buffers(name: str, backend: Backend) -> None:
    """In random poses on and up to half a metre above the ground, with random torques at their limits."""
    count = 24  # and few steps: a launch takes longer than what a robot adds to it
    sim = make_simulator(backend.name, find_spec(name).model_path, count, 1 / 60, 2, backend.device)
    random = torch.Generator().manual_seed(0)

    def rand(*shape: int) -> torch.Tensor:
        return 2.0 * torch.rand(*shape, generator=random) - 1.0

    low, high = sim.dof_limits_lower.clamp(min=-3.0), sim.dof_limits_upper.clamp(max=3.0)
    pos = (low + high) / 2 + rand(count, sim.num_dofs) * (high - low) / 2
    root = torch.zeros(count, 13)
    root[:, 2] = 0.3 + 0.3 * rand(count)
    root[:, 3:7] = torch.nn.functional.normalize(torch.randn(count, 4, generator=random), dim=1)
    state = {"root_states": root, "dof_pos": pos, "dof_vel": 5.0 * rand(count, sim.num_dofs)}
    sim.write(everywhere(sim), **{key: x.to(sim.device) for key, x in state.items()})
    sim.set_drive_mode(everywhere(sim))
    for _ in range(12):
        sim.step((sim.effort_limits * rand(count, sim.num_dofs).sign()).to(sim.device))
    assert not sim.contact_overflows.any() and sim.unstable.sum() <= 3
    assert name in ("Cartpole", "CartpoleSwingup") or sim.contact_forces.any(), "the test needs contacts"
