"""The estimate of a run's memory, and the division into waves."""

import gc
import pickle
from dataclasses import dataclass
from itertools import chain

import pytest
import torch

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.prepare import plan as memory
from envcoder_bench.run.prepare.environments import build_env
from envcoder_bench.run.prepare.groups import prepare
from envcoder_bench.run.prepare.plan import MemoryPlanner, parse_size, split
from envcoder_bench.run.prepare.run_files import baseline_sources
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.sources.registry import find_spec


@pytest.mark.parametrize(
    "text, size",
    [
        ("24GiB", 24 * 2**30),
        ("24", 24 * 2**30),
        (24, 24 * 2**30),
        (0.5, 2**29),
        ("24G", 24 * 2**30),
        ("24gb", 24 * 10**9),
        ("1.5 MiB", 3 * 2**19),
        ("1500MB", 1_500_000_000),
        ("2TB", 2 * 10**12),
        ("4096B", 4096),
    ],
)
def test_sizes_are_parsed(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "lots", "-3", "0", "0GiB", "1e3", "3 parsecs", "GiB", "nan", True, [1]])
def test_bad_sizes_are_refused(text):
    with pytest.raises(UserError, match=r"--max_memory must be a size such as 24GiB, 24000MB or 24 \(GiB\), got"):
        parse_size(text)


@pytest.mark.parametrize("groups", [1, 2, 7, 12])
def test_split_keeps_order_and_balances_waves(groups):
    for count in range(1, groups + 1):
        waves = split(list(range(groups)), count)
        assert list(chain(*waves)) == list(range(groups))
        sizes = [len(wave) for wave in waves]
        assert len(sizes) == count
        assert max(sizes) - min(sizes) <= 1 and sizes == sorted(sizes, reverse=True)
        assert min(sizes) > 0


@dataclass
class Width:
    obs_dim: int
    action_dim: int


@dataclass
class Group:
    """As much of a group as a plan reads."""

    name: str
    shaping: Width

    @property
    def widths(self):
        return self.shaping.obs_dim, self.shaping.action_dim


def planner(task="Anymal", *overrides):
    cfg = compose_config(task, list(overrides))
    cfg = cfg.model_copy(update={"sim": "mujoco_cpu", "device": "cpu"})
    return MemoryPlanner(RunSpec.of(cfg))


GROUPS = [Group(str(k), Width(obs_dim, 12)) for k, obs_dim in enumerate([48, 30, 48, 300, 48, 60, 48, 48, 10])]


def planned_bytes(wave):
    return planner().bytes([(group.shaping.obs_dim, group.shaping.action_dim) for group in wave])


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3, 5])
def test_plan_has_the_fewest_waves_that_fit(count):
    def largest(k):
        return max(planned_bytes(wave) for wave in split(GROUPS, k))

    limit = largest(count)
    plan = planner("Anymal", f"max_memory={limit}B").plan(GROUPS)
    waves = len(plan.waves)
    assert plan.waves == split(GROUPS, waves)
    assert plan.needed == largest(waves) <= limit == plan.available
    assert all(largest(fewer) > limit for fewer in range(1, waves))
    assert plan.at_once == planned_bytes(GROUPS)
    assert (f"{waves} waves" if waves > 1 else "one wave") in str(plan)


@pytest.mark.slow
@pytest.mark.parametrize("obs, act", [(20_000, 12), (48, 6_000)])
def test_widest_candidate_is_reported_with_its_padding_cost(obs, act):
    wide = Group("wide", Width(obs, act))
    groups = [*GROUPS[:3], wide, *GROUPS[4:]]
    plan = planner("Anymal", "max_memory=100TB").plan(groups)
    (told,) = plan.wide
    others = [group for group in groups if group is not wide]
    program = int(memory.PROGRAM["cpu"])
    cost = planned_bytes(groups) - (planned_bytes(others) + planned_bytes([wide]) - program)
    kind = f"{obs:,} observations" if obs > 48 else f"{act:,} actions"
    assert told.startswith(f"wide has {kind} and the next widest candidate {60 if obs > 48 else 12}: all are padded")
    assert f"costs {memory._size(cost)} of the {memory._size(planned_bytes(groups))}" in told


def test_candidate_of_common_width_is_not_reported():
    assert planner().plan(GROUPS).wide == ()
    assert planner().plan(GROUPS[3:4]).wide == ()


@pytest.mark.slow
def test_group_that_does_not_fit_is_refused_with_its_size():
    alone = max(planned_bytes([group]) for group in GROUPS)
    tight = planner("Anymal", f"max_memory={alone - 1}B")
    tight.refuse_too_large()  # not known before the candidates are loaded: others are narrower
    with pytest.raises(UserError, match=r"^3 with 256 environments needs .* about 2\d\d environments fit; lower"):
        tight.plan(GROUPS)
    with pytest.raises(UserError, match="one candidate with 256 environments needs about"):
        planner("Anymal", "max_memory=1MB").refuse_too_large()


def test_begun_wave_is_not_split():
    largest = planned_bytes(GROUPS[3:4])  # what begins with less memory than before goes on all the same
    plan = planner("Anymal", f"max_memory={largest}B").plan(GROUPS[5:], begun=[GROUPS[:5]])
    assert plan.waves[0] == GROUPS[:5]
    assert list(chain(*plan.waves[1:])) == GROUPS[5:]
    assert planner("Anymal").plan([], begun=[GROUPS[:2]]).waves == [GROUPS[:2]]
    assert planner("Anymal").plan([]).waves == []


def test_available_memory_is_the_minimum_of_max_memory_and_free_memory(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 10 * 2**30)
    program = memory.PROGRAM["cpu"]
    assert planner().available == int(program) + int(memory.USABLE * 10 * 2**30)
    assert planner("Anymal", "max_memory=4").available == 4 * 2**30
    assert planner("Anymal", "max_memory=4TB").available == planner().available


@pytest.mark.parametrize("task", ["Cartpole", "Anymal"])
def test_memory_estimate_bounds_the_counted_tensors(task):
    """Counts the tensors of each further environment; the simulator reports its own arrays."""
    cfg = compose_config(task)
    cfg = cfg.model_copy(update={"sim": "mujoco_cpu", "device": "cpu"})
    groups, _ = prepare(RunSpec.of(cfg, baseline_sources(find_spec(task))))

    def tensors(num_envs):
        layout = GroupLayout(2, num_envs)
        before = _storages()
        env = build_env(RunSpec.of(cfg), [g.shaping for g in groups], [0, 0], num_envs)
        env.step(torch.zeros_like(env.actions))
        new = {key: size for key, size in _storages().items() if key not in before}
        return sum(new.values()), env.task.bytes_per_env * layout.num_envs

    (few, simulated_few), (many, simulated_many) = tensors(64), tensors(256)
    counted = (many - few) / (2 * 192)
    widest = [max(getattr(g.shaping, name) for g in groups) for name in ("obs_dim", "action_dim")]
    estimate = MemoryPlanner(RunSpec.of(cfg))._environments(*widest) / (256 + 32)
    simulator = (simulated_many - simulated_few) / (2 * 192)
    assert counted < estimate < counted + simulator


def _storages():
    gc.collect()
    found = [x.untyped_storage() for x in gc.get_objects() if type(x) is torch.Tensor]
    return {storage.data_ptr(): storage.nbytes() for storage in found}


@pytest.mark.slow
def test_candidates_are_prepared_while_the_simulators_kernels_are_loaded(monkeypatch):
    mujoco_warp = pytest.importorskip("envcoder_bench.sim.mujoco_warp")
    waited, wait = [], mujoco_warp.MujocoWarp._wait
    monkeypatch.setattr(mujoco_warp.MujocoWarp, "_wait", lambda sim: waited.append(sim._loading) or wait(sim))
    cfg = compose_config("Cartpole", ["sim=mujoco_warp", "device=cpu", "num_envs_per_candidate=4"])
    planner = MemoryPlanner(RunSpec.of(cfg))
    groups, faults = prepare(RunSpec.of(cfg, baseline_sources(find_spec("Cartpole")), None), planner.take_probe())
    assert len(groups) == 2 and not faults
    assert not any(waited) and not planner.ready
    needed = planner.bytes([groups[0].widths])
    assert any(waited) and planner.ready
    copy = pickle.loads(pickle.dumps(planner))
    assert copy.ready and copy.bytes([groups[0].widths]) == needed
    waiting = MemoryPlanner(RunSpec.of(cfg))
    assert pickle.loads(pickle.dumps(waiting)).ready  # another process cannot measure
    waiting.close()
    assert waiting.bytes([groups[0].widths]) == needed
