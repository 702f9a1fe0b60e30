"""Parts of a step, recorded once and replayed: the same bits as calls of the functions.

On a CPU a tape takes the place of a CUDA graph: it keeps the operators of one call with the tensors that they read and
wrote, and runs them again. So a number of the host that enters a graph is found without a GPU.
"""

from functools import partial

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.env import grouped_vec_task, step_graphs
from envcoder_bench.env.evaluation import run_episodes
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.folder import CandidateSource
from envcoder_bench.run.prepare import build_task, prepare

CUDA = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
DEVICES = ["cpu", pytest.param("cuda", marks=CUDA)]
N, STEPS = 4, 40

SHORT = """
def compute_terminal(progress_buf):
    return progress_buf >= {limit}
"""
RANDOM = (
    SHORT.format(limit=7)
    + """
def compute_initial_state(dof_pos, dof_vel):
    return {"dof_pos": 0.1 * torch.rand_like(dof_pos), "dof_vel": torch.zeros_like(dof_vel)}
"""
)
TASKS = ["Cartpole", "Ant", "Anymal", "FrankaCubeStack", "AllegroHand"]


class Tape(TorchDispatchMode):
    """The operators of one call, to be run again on the same memory."""

    now: "Tape | None" = None  # the one that records

    def __init__(self):
        super().__init__()
        self.ops = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        self.ops.append(partial(self.again, func, args, kwargs or {}, made))
        return made

    def again(self, func, args, kwargs, before):
        after = func(*args, **kwargs)
        for old, new in zip(tree_leaves(before), tree_leaves(after)):
            if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                old.copy_(new)


class Taped:
    """Takes the place of a CapturedFunction: eager, recorded, then replayed."""

    replays = 0

    def __init__(self, function, device, pool):
        self.function, self.calls, self.tape = function, 0, Tape()

    def __call__(self):
        self.calls += 1
        if self.calls == 1:
            return self.function()
        if self.calls == 2:
            Tape.now = self.tape
            with self.tape:
                self.made = self.function()
            Tape.now = None
            return self.made
        Taped.replays += 1
        for op in self.tape.ops:
            op()
        return self.made


def on_tape(function):
    """A function that is no operator of torch: a tape that records keeps its call as a whole."""

    def call(*args, **kwargs):
        tape = Tape.now
        if tape is None:
            return function(*args, **kwargs)
        tape.ops.append(partial(function, *args, **kwargs))
        tape.__exit__(None, None, None)
        made = function(*args, **kwargs)
        tape.__enter__()
        return made

    return call


def make_env(task, device, monkeypatch, recorded, evaluation=False):
    own = {"cpu": ("mujoco_cpu", "cpu"), "cuda": ("mujoco_warp", "cuda:0")}
    cfg = compose_config(task, [f"num_envs_per_candidate={N}", "seeds=2"])
    cfg.sim, cfg.device = own[device]
    texts = {"a": SHORT.format(limit=5), "b": RANDOM}
    groups, failed = prepare(cfg, [CandidateSource(name, f"{name}.py", text) for name, text in texts.items()])
    assert not failed, failed
    layout = GroupLayout(len(groups), N)
    shapings = [group.evaluation if evaluation else group.shaping for group in groups]
    if device == "cpu":
        whole = grouped_vec_task.Dispatcher
        monkeypatch.setattr(grouped_vec_task, "Dispatcher", partial(whole, deferred_faults=True))
        monkeypatch.setattr(step_graphs, "CapturedFunction", Taped)
    monkeypatch.setenv("ENVCODER_BENCH_STEP_GRAPHS", "1")
    env = GroupedVecTask(build_task(cfg, layout.num_envs), layout, shapings, [group.seed for group in groups])
    if device == "cpu":
        env._asks = False
        sim = vars(env.task)["sim"]
        sim.write = on_tape(sim.write)
        for stage in env.dispatch.stages.values():
            stage.launch = on_tape(stage.launch)
        env._graphs = step_graphs.StepGraphs(env.dispatch, env.device) if recorded else None
        monkeypatch.undo()
        monkeypatch.setattr(step_graphs, "CapturedFunction", Taped)
    elif not recorded:
        env._graphs = None
    return env


def parts_of(env):
    assert env._graphs is not None
    return set(env._graphs._parts)


def actions_at(env, step):
    generator = torch.Generator().manual_seed(step)
    return (2.0 * torch.rand(env.actions.shape, generator=generator) - 1.0).to(env.device)


def rollout(env, steps):
    """Everything that a training reads of a rollout."""
    seen = [env.reset()]
    for t in range(steps):
        made = env.step(actions_at(env, t), final_obs=t % 3 == 0)
        seen += [x.clone() for x in made if x is not None]
        if t % 16 == 15:
            env.dispatch.poll()
            seen += [env.stats.shaped_return().clone(), env.dispatch._components.counts.clone()]
            assert all(env.alive), env.failures
        if t == 25:
            env.dispatch.recheck()
    return [*seen, *(x for x in env.get_state()["task"].values())]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("task", TASKS)
def test_replayed_steps_are_bitwise_those_of_calls(task, device, monkeypatch):
    calls = rollout(make_env(task, device, monkeypatch, recorded=False), STEPS)
    env = make_env(task, device, monkeypatch, recorded=True)
    Taped.replays = 0
    replayed = rollout(env, STEPS)
    assert parts_of(env) == {"command", "score", "go_on"}
    assert device == "cuda" or Taped.replays > 2 * STEPS
    assert len(calls) == len(replayed)
    for k, (x, y) in enumerate(zip(calls, replayed)):
        assert torch.equal(x, y), k


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("task", TASKS)
def test_replayed_episodes_are_bitwise_those_of_calls(task, device, monkeypatch):
    played = []
    for recorded in (False, True):
        env = make_env(task, device, monkeypatch, recorded, evaluation=True)

        def policy(obs, env=env):
            return torch.sin(obs[:, :1] * 50.0).expand_as(env.actions)

        rounds = [run_episodes(env, policy, 1, first, check_at=3, steps=30) for first in (100, 1000, 100)]
        assert torch.equal(rounds[0].fitness, rounds[2].fitness)  # results outlive the next replay
        played.append(torch.stack([torch.cat([own.fitness, own.length]) for own in rounds]))
    assert torch.equal(*played)
    assert parts_of(env) == {"command", "judge", "go_on"}
