"""Robots in one simulation: each episode is its own, drag and ice are as their formulas say, runs resume bitwise."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from grids import batch, grid, network, part, policy

from envcoder_bench.grid.batch import Batch, Spec, select
from envcoder_bench.grid.part import EPISODES, STATE, Part
from envcoder_bench.terrain.arenas import Arena, Zone

SHORT = ("episodes=3", "seconds=1.0", "check_every=10", "arenas.boulder.zones=[[0.1,0.2,60]]")
SMALL = Arena("small", (Zone("flat", 1.0, drag=5.0), Zone("stairs", 1.5, (0.1,), count=3)), 4.0, 2.0)


def _two():
    return [policy("rough", "rough"), policy("flat", "flat", network(48, 1))]


@pytest.fixture(scope="module")
def inputs():
    return grid(_two(), ["friction", "boulder", SMALL], *SHORT)


@pytest.fixture(scope="module")
def complete(inputs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("complete")
    assert part(inputs, folder=folder).run(lambda _: None, lambda: False)
    return (folder / EPISODES).read_bytes()


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("device", ["cuda:0", "cuda:1"])
def test_every_step_is_counted_on_cuda(inputs, device) -> None:
    """On each GPU of a process, whichever captured first."""
    if torch.device(device).index >= torch.cuda.device_count():
        pytest.skip("needs two CUDA devices")
    own = Batch(Part(inputs, inputs.specs, Path("nowhere"), "mujoco_warp", device).scene, inputs.specs)
    for count in range(1, 8):
        own.advance(1)
        assert own.episodes.state["steps"].max() == count
    assert own._graph is not None


@pytest.mark.slow
def test_episodes_are_independent_of_other_episodes(inputs, complete, tmp_path) -> None:
    lines = complete.splitlines()
    assert len(lines) == 18
    for k, spec in enumerate(inputs.specs):
        if k % 5:
            continue
        folder = tmp_path / str(k)
        folder.mkdir()
        part(inputs, [spec], folder).run(lambda _: None, lambda: False)
        assert (folder / EPISODES).read_bytes().strip() in lines, spec


@pytest.mark.slow
@pytest.mark.parametrize("stop_at", [1, 3])
def test_stopped_part_resumes_bitwise(inputs, complete, tmp_path, stop_at) -> None:
    calls = []
    assert not part(inputs, folder=tmp_path).run(lambda _: None, lambda: len(calls) >= stop_at or bool(calls.append(0)))
    assert (tmp_path / STATE).is_file()
    with open(tmp_path / EPISODES, "ab") as file:
        file.write(b'{"episode_id": "cut of')  # a line that a kill cut off
    assert part(inputs, folder=tmp_path).run(lambda _: None, lambda: False)
    assert (tmp_path / EPISODES).read_bytes() == complete
    assert not (tmp_path / STATE).exists()


def test_policies_have_separate_action_scales() -> None:
    first, second = _two()
    both = batch(grid([replace(first, action_scale=0.4), second], ["friction"], *SHORT))
    both.advance(2)
    moved, actions = both._target - both._stance, both._actions
    assert actions.abs().amin() > 0
    assert torch.allclose(moved[:3], 0.4 * actions[:3]) and torch.allclose(moved[3:], 0.2 * actions[3:])


@pytest.mark.slow
def test_solver_converges_on_ice() -> None:
    """Motion on ice is equal for 40 and 200 solver iterations, and differs for the model's six."""
    ice = Arena("ice", (Zone("flat", 6.0, friction=0.02),), 6.0)
    moved = {}
    for iterations in (6, 40, 200):
        struggling = policy("rough", "rough", network(235, size=20.0))
        words = ("episodes=12", f"solver_iterations={iterations}", "robots.spot.action_scale=0.5")
        robots = batch(grid([struggling], [ice], *words))
        robots.advance(60)
        moved[iterations] = robots.sim.root_states
    assert torch.equal(moved[40], moved[200]) and not torch.equal(moved[6], moved[200])


@pytest.mark.slow
def test_part_stopped_between_waves_resumes(inputs, complete, tmp_path) -> None:
    waves = grid(inputs.policies, inputs.arenas, *SHORT, "max_robots=7")
    calls = []
    part(waves, folder=tmp_path).run(lambda _: None, lambda: len(calls) >= 7 or bool(calls.append(0)))
    assert part(waves, folder=tmp_path).run(lambda _: None, lambda: False)
    assert sorted((tmp_path / EPISODES).read_bytes().splitlines()) == sorted(complete.splitlines())


def test_compacted_batch_continues_bitwise() -> None:
    inputs = grid([policy("flat", "flat")], ["friction"], "episodes=20", "seconds=2")
    whole, small = batch(inputs), batch(inputs)
    for own in (whole, small):
        own.advance(5)
    small.episodes.end[:17] = 1  # 17 falls
    assert len(list(small.ended())) == 17
    assert not small.compact(0.1)
    assert small.compact(0.5)
    assert [spec.number for spec in small.specs] == [17, 18, 19]
    for own in (whole, small):
        own.advance(20)
    kept = select(whole.state(), [17, 18, 19], 20)
    for name, tensor in small.state().items():
        assert torch.equal(tensor, kept[name]), name
    assert small.running == 3


@pytest.mark.slow
def test_starts_are_seeded_spread_and_paired_between_policies() -> None:
    first = batch(grid(_two(), ["friction"], "episodes=4"))
    root = first.sim.root_states
    assert torch.equal(root[:4], root[4:])  # the second policy's starts
    assert len({tuple(row) for row in root[:4, :3].tolist()}) == 4
    assert (root[:, 0].abs() <= 0.1).all() and ((root[:, 1] - 15.0).abs() <= 0.1).all()
    other = batch(grid(_two(), ["friction"], "episodes=4", "seed=1"))
    assert not torch.equal(root, other.sim.root_states)


class _Limp(torch.nn.Module):
    def forward(self, obs):
        return torch.zeros(len(obs), 12)


def test_start_yaw_covers_the_whole_spread() -> None:
    robots = batch(grid([policy("a", "flat")], ["friction"], "episodes=64", "start.spread_yaw=3.0"))
    quat = robots.sim.root_states[:, 3:7]
    yaw = 2.0 * torch.atan2(quat[:, 2], quat[:, 3])
    assert yaw.abs().max() > 2.7
    torch.testing.assert_close(quat.norm(dim=1), torch.ones(64))


@pytest.mark.slow
@pytest.mark.parametrize("drag", [0.5, 5.0, 20.0])
def test_drag_decays_speed_by_the_formula(drag) -> None:
    """Without other forces vx becomes vx / (1 + 0.1 drag) in each control step."""
    arena = Arena("grass", (Zone("flat", 50.0, drag=drag),), 30.0)
    own = batch(
        grid([policy("limp", "flat", _Limp())], [arena], "episodes=1", "start.spread_yaw=0", "start.spread_joints=0")
    )
    root = own.sim.root_states.clone()
    root[:, 2], root[:, 7] = 30.0, 3.0
    own.sim.write(torch.ones(1, dtype=torch.bool), root, own.sim.dof_pos, own.sim.dof_vel)
    own._decide()
    for step in range(1, 6):
        own.advance(1)
        assert float(own.sim.root_states[0, 7]) == pytest.approx(3.0 / (1.0 + 0.1 * drag) ** step, rel=5e-3, abs=2e-3)


def test_standing_robots_are_neither_fallen_nor_flipped(inputs, complete) -> None:
    assert b'"end": "unstable"' not in complete
    text = complete.decode()
    assert '"environment": "friction"' in text and '"end": "limit"' in text


def test_specs_are_sorted_by_policy(inputs) -> None:
    assert inputs.specs[:2] == [Spec(0, 0, 0), Spec(0, 0, 1)]
    assert [spec.policy for spec in inputs.specs] == [0] * 9 + [1] * 9


class _Counting(torch.nn.Module):
    """A policy that counts its steps."""

    memory_dim = 1

    def __init__(self) -> None:
        super().__init__()
        self.net = network(48)

    def forward(self, both):
        obs, count = both[:, :48], both[:, 48:]
        return torch.cat([self.net(obs) + 0.02 * count, count + 1.0], dim=1)


def test_actions_come_late_and_memory_goes_with_the_robots() -> None:
    inputs = grid([policy("counts", "flat", _Counting())], ["friction"], *SHORT, "delay_ms=39")
    own, asked = batch(inputs), []
    scale = own._action_scale
    for step in range(4):
        asked.append(own._actions.clone())
        late = asked[step - 2] if step >= 2 else torch.zeros_like(asked[0])
        assert torch.equal(own._target, own._stance + scale * late)
        assert bool((own._memory == step + 1).all())
        own.advance(1)
    assert not torch.equal(asked[0], asked[1])
    # robots that go on alone take their memory and the actions that wait with them
    again = Batch.resumed(own.scene, own.specs[1:2], select(own.state(), [1], len(own.specs)), own.step_count)
    own.advance(3)
    again.advance(3)
    assert torch.equal(again._target[0], own._target[1]) and torch.equal(again._memory[0], own._memory[1])
