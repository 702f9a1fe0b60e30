"""The environment on the real Cartpole: what functions see, when episodes end, and that groups are paired."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from envcoder_bench.env.evaluation import bin_ends, run_episodes, run_point
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.folder.run_folder import CandidateSource
from envcoder_bench.run.prepare.environments import build_env
from envcoder_bench.run.prepare.groups import prepare
from envcoder_bench.run.spec import RunSpec

N = 6
STATE_AS_REWARD = "def compute_reward(dof_pos):\n    return dof_pos[:, 0] + 10.0 * dof_pos[:, 1]\n"
COSINE = "def compute_reward(pole_angle):\n    return torch.cos(pole_angle)\n"
NEVER_ENDS = COSINE + "def compute_terminal(pole_angle):\n    return torch.zeros_like(pole_angle)\n"


def make_env(
    sources: dict[str, str],
    seeds: int = 1,
    evaluation: bool = False,
    overrides: Sequence[str] = (),
    task: str = "Cartpole",
):
    cfg = compose_config(task, [f"num_envs_per_candidate={N}", f"seeds={seeds}", *overrides])
    cfg = cfg.model_copy(update={"sim": "mujoco_cpu", "device": "cpu"})
    groups, failed = prepare(
        RunSpec.of(cfg, [CandidateSource(name, f"{name}.py", text) for name, text in sources.items()])
    )
    assert not failed
    shapings = [group.evaluation if evaluation else group.shaping for group in groups]
    return build_env(RunSpec.of(cfg), shapings, [group.seed for group in groups], N)


def test_reward_uses_the_state_after_the_physics_step():
    env = make_env({"a": STATE_AS_REWARD})
    env.reset()
    before = env.task.state["dof_pos"].clone()
    reward = env.step(torch.ones(N, 1)).reward
    after = env.task.state["dof_pos"]  # no episode ends at the first step
    torch.testing.assert_close(reward, after[:, 0] + 10.0 * after[:, 1])
    assert not torch.allclose(before, after)


def test_observation_after_termination_is_of_the_new_episode():
    env = make_env({"a": COSINE + "def compute_terminal(progress_buf):\n    return progress_buf >= 3\n"})
    env.reset()
    for _ in range(3):
        step = env.step(torch.ones(N, 1))
    assert step.terminated.all() and not step.truncated.any()
    assert (env.progress_buf == 0).all()
    assert (env.actions == 0).all()
    # the human baseline starts within 0.1 of upright and observes positions and velocities raw
    assert step.obs[:, [0, 2]].abs().max() <= 0.1
    assert torch.equal(step.obs[:, 0], env.task.state["dof_pos"][:, 0])


CLOCK = """
def compute_observation(progress_buf, dof_pos):
    return torch.stack([progress_buf * 1.0, dof_pos[:, 0]], dim=1)
def compute_terminal(progress_buf, state_dict):
    lane = torch.arange(len(progress_buf), device=progress_buf.device)
    return (progress_buf == 2) & (lane < 2)
"""


def test_step_returns_expected_terminated_truncated_and_final_obs():
    """The candidate terminates lanes 0 and 1 every 2 steps; the time limit truncates all others at step 4."""
    env = make_env({"a": COSINE + CLOCK}, overrides=["task.env.episodeLength=5"])
    env.reset()
    steps = [env.step(torch.ones(N, 1), final_obs=True) for _ in range(4)]
    early, late = [1.0] * 2 + [0.0] * (N - 2), [0.0] * 2 + [1.0] * (N - 2)
    assert [step.terminated.tolist() for step in steps] == [[0.0] * N, early, [0.0] * N, early]
    assert [step.truncated.tolist() for step in steps] == [[0.0] * N, [0.0] * N, [0.0] * N, late]
    assert [step.done.tolist() for step in steps] == [[0.0] * N, early, [0.0] * N, [1.0] * N]
    clocks = [step.final_obs[:, 0].tolist() for step in steps]
    assert clocks == [[1.0] * N, [2.0] * N, [1.0] * 2 + [3.0] * (N - 2), [2.0] * 2 + [4.0] * (N - 2)]
    assert [step.obs[:, 0].tolist() for step in steps][1::2] == [[0.0] * 2 + [2.0] * (N - 2), [0.0] * N]
    for step in steps:  # the state itself is another one only where an episode ended
        assert torch.equal(step.final_obs[~step.done], step.obs[~step.done])
        assert (step.final_obs[step.done] != step.obs[step.done]).all()


@pytest.mark.parametrize("compiled", ["true", "false"])
def test_requesting_final_obs_changes_no_other_result(compiled):
    noisy = "def compute_observation(dof_pos):\n    return dof_pos + torch.rand_like(dof_pos)\n"
    sources = {"a": COSINE + noisy, "b": COSINE + CLOCK}
    asked, plain = (make_env(sources, overrides=[f"compile_shapers={compiled}"]) for _ in range(2))
    asked.reset(), plain.reset()
    for t in range(30):
        action = torch.full((2 * N, 1), 1.0 - 0.1 * t)
        one, other = asked.step(action, final_obs=True), plain.step(action)
        assert other.final_obs is None
        for name in ("obs", "reward", "terminated", "truncated"):
            assert torch.equal(getattr(one, name), getattr(other, name)), name
        # an episode that goes on is observed once, with one draw of noise
        assert torch.equal(one.final_obs[~one.done], one.obs[~one.done])
    assert bool(one.terminated.any()) or asked.stats.training_episodes.sum() > 0


def test_reached_goal_is_renewed_without_ending_the_episode():
    goal = "def compute_goal(targets):\n    return {'targets': 100.0 * (1.0 + torch.rand_like(targets))}\n"
    env = make_env({"a": goal + "def compute_reward(targets):\n    return targets[:, 0] * 1.0\n"}, task="Ant")
    env.reset()
    first = env.task.state["targets"].clone()
    env.task.new_goal = torch.zeros(N, dtype=torch.bool)
    env.step(torch.zeros(N, 8))
    assert torch.equal(env.task.state["targets"], first)
    env.task.new_goal[2] = True  # a task that has such a buffer sets it in its step
    before = env.task.state["root_states"].clone()
    step = env.step(torch.zeros(N, 8))
    assert torch.equal(step.reward, first[:, 0])  # judged by the old goal
    assert not step.done.any() and env.progress_buf.tolist() == [2] * N
    renewed = (env.task.state["targets"] != first).any(dim=1)
    assert renewed.tolist() == [False, False, True, False, False, False]
    assert (env.task.state["root_states"][2] - before[2]).abs().max() < 1.0  # it fell on, from where it was


def test_unstable_physics_terminates_and_counts_one_environment():
    env, untouched = (make_env({"a": COSINE, "b": COSINE}) for _ in range(2))
    for e in (env, untouched):
        e.reset()
    state = env.task.get_state()
    rows = next(key for key, x in state.items() if x.dtype == torch.float64 and x.dim() == 2)
    state[rows][3] = float("nan")
    env.task.set_state(state)
    step, expected = env.step(torch.zeros(2 * N, 1)), untouched.step(torch.zeros(2 * N, 1))
    assert step.terminated.tolist() == [i == 3 for i in range(2 * N)]
    assert env.stats.unstable_resets.tolist() == [1, 0]
    assert not step.truncated.any()
    assert step.reward[3] == 0.0
    assert torch.isfinite(step.obs).all()
    others = [i for i in range(2 * N) if i != 3]
    assert torch.equal(step.obs[others], expected.obs[others])
    assert torch.equal(step.reward[others], expected.reward[others])
    assert env.alive == [True, True]


def test_initial_state_out_of_range_counts_as_unstable_reset():
    far = "def compute_initial_state(dof_pos):\n    return {'dof_pos': torch.full_like(dof_pos, 1e6)}\n"
    env, untouched = make_env({"a": COSINE + far, "b": COSINE}), make_env({"b": COSINE})
    observed, expected = env.reset(), untouched.reset()
    for _ in range(3):
        assert observed[:N].abs().max() < 5.0 and torch.equal(observed[N:], expected)
        step = env.step(torch.zeros(2 * N, 1))
        observed, expected = step.obs, untouched.step(torch.zeros(N, 1)).obs
        assert step.terminated[:N].all() and not step.truncated.any() and not step.reward[:N].any()
    assert env.stats.unstable_resets.tolist() == [3 * N, 0]
    assert env.stats.training_episodes.tolist() == [3 * N, int(step.done[N:].sum())]
    assert env.alive == [True, True]


def test_training_episodes_are_counted_across_logs_and_checkpoints():
    ends = "def compute_terminal(progress_buf):\n    return progress_buf >= 2\n"
    env, other = (make_env({"a": COSINE + ends, "b": NEVER_ENDS}) for _ in range(2))
    env.reset()
    for step in range(6):
        env.step(torch.zeros(2 * N, 1))
        if step == 3:
            env.stats.shaped_return()  # as a log does
    assert env.stats.training_episodes.tolist() == [3 * N, 0]
    other.set_state(env.get_state())
    assert other.stats.training_episodes.tolist() == [3 * N, 0]


def test_contact_overflows_are_summed_per_group_and_cleared():
    env = make_env({"a": COSINE, "b": COSINE})
    env.task.contact_overflows += torch.arange(2 * N, dtype=torch.int32)
    assert env.take_contact_overflows().tolist() == [sum(range(N)), sum(range(N, 2 * N))]
    assert env.take_contact_overflows().tolist() == [0, 0]


def test_actions_are_clipped_and_padding_is_zeroed():
    wide = "ACTION_DIM = 3\ndef compute_torque(action, state_dict):\n    return action[:, :2] * 100.0\n"
    env = make_env({"a": COSINE, "b": COSINE + wide})
    assert (env.action_dims, env.actions.shape) == ([1, 3], (2 * N, 3))
    env.reset()
    env.step(torch.full((2 * N, 3), 7.0))
    assert env.actions[:N].tolist() == [[1.0, 0.0, 0.0]] * N
    assert env.actions[N:].tolist() == [[1.0, 1.0, 1.0]] * N
    assert env.views[0]["actions"].shape == (N, 1)


def test_evaluation_fitness_ignores_the_candidates_shaping():
    start = "def compute_initial_state(dof_pos):\n    return {'dof_pos': torch.full_like(dof_pos, 2.0)}\n"
    shaped = NEVER_ENDS + start
    env = make_env({"plain": COSINE, "shaped": shaped}, evaluation=True)
    episodes = run_episodes(env, lambda obs: torch.zeros(2 * N, 1), rounds=2, first_step=0)
    assert episodes.fitness.shape == (2, 2 * N)
    assert torch.equal(episodes.fitness[0], episodes.fitness[1])
    # nobody pushes: the pole falls in a fraction of the 500 steps, and what was earned counts against all of them
    assert (episodes.length < 250).all()
    assert (episodes.fitness * 500 <= episodes.length).all()
    again = run_episodes(env, lambda obs: torch.zeros(2 * N, 1), rounds=2, first_step=0)
    assert torch.equal(again.fitness, episodes.fitness)
    assert_course_fits(episodes.first(2 * N - 1), env.full_episode, env.full_episode)


def assert_course_fits(episodes, full_episode, parts):
    """The bins of an episode add up to its fitness, and those of the steps played to its length, bin by bin."""
    ends = torch.tensor([0, *bin_ends(full_episode)], dtype=torch.float64)
    widths, begins = torch.diff(ends), ends[:-1]
    fitness, active = episodes.step_means(full_episode).unbind(1)
    assert len(widths) == min(50, full_episode) and widths.max() - widths.min() <= 1 and ends[-1] == full_episode
    torch.testing.assert_close(
        (fitness * widths).sum(1), parts * episodes.fitness.double().mean(1), rtol=1e-5, atol=1e-6
    )
    played = (episodes.length.double()[..., None] - begins).clamp(min=0).minimum(widths).mean(1)
    torch.testing.assert_close(active * widths, played, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("task", "overrides", "full"),
    [
        # with a tolerance of half a turn the goal is reached on each of the 19 steps
        ("AllegroHand", ["env.episodeLength=20", "env.successTolerance=3.15", "env.fallDistance=9"], 19.0),
        ("Cartpole", ["env.episodeLength=5"], 1.0),  # the pole cannot fall so soon
    ],
)
def test_fitness_is_the_sum_or_the_mean_over_the_episode_by_task(task, overrides, full):
    reward = "def compute_reward(dof_pos):\n    return dof_pos[:, 0]\n"
    env = make_env({"a": reward}, 1, True, [f"task.{key}" for key in overrides], task)
    episodes = run_episodes(env, lambda obs: torch.zeros(N, max(env.action_dims)), rounds=1, first_step=0)
    assert (episodes.length == env.full_episode).all()
    assert episodes.fitness.tolist() == [[full] * N]  # to the last bit
    assert_course_fits(episodes, env.full_episode, env.full_episode if full == 1.0 else 1)


def test_shorter_evaluation_plays_the_beginning_of_the_same_episodes():
    env = make_env({"a": COSINE}, evaluation=True)
    full = run_episodes(env, lambda obs: torch.zeros(N, 1), rounds=2, first_step=0)
    steps = int(full.length.median())
    part = run_episodes(env, lambda obs: torch.zeros(N, 1), rounds=2, first_step=0, steps=steps)
    assert torch.equal(part.length, full.length.clamp(max=steps))
    early = full.length < steps  # they fell before: their fitness is known
    assert early.any() and not early.all()
    assert torch.equal(part.fitness[early], full.fitness[early])
    assert (part.fitness[~early] * steps <= full.fitness[~early] * env.full_episode + 1e-4).all()
    assert (part.fitness[~early] > full.fitness[~early]).all()  # they fell later
    assert part.course is None and full.course is not None


def test_point_of_full_episodes_equals_a_shorter_evaluation():
    env = make_env({"a": COSINE}, evaluation=True)
    full = run_episodes(env, lambda obs: torch.zeros(N, 1), rounds=1, first_step=0)
    for steps in (int(full.length.median()), int(full.length.max()) + 1, env.full_episode):
        part = run_episodes(env, lambda obs: torch.zeros(N, 1), rounds=1, first_step=0, steps=steps)
        played, point = run_point(env, lambda obs: torch.zeros(N, 1), 0, 0, steps)
        for found, expected in ((played, full), (point, part)):
            assert torch.equal(found.fitness, expected.fitness) and torch.equal(found.length, expected.length)


def test_evaluation_states_stay_within_the_range_of_training():
    # both hold wherever an episode runs: the pole above the horizon, the clock short of the time-out
    picky = """
TABLE = torch.linspace(0, 1, 199)
def compute_observation(pole_angle, progress_buf):
    return torch.stack([torch.sqrt(torch.cos(pole_angle)), TABLE[progress_buf]], dim=1)
"""
    env = make_env({"a": COSINE + picky, "b": COSINE}, evaluation=True, overrides=["task.env.episodeLength=200"])
    episodes = run_episodes(env, lambda obs: torch.zeros(2 * N, 1), rounds=3, first_step=0)
    assert env.alive == [True, True]
    assert (episodes.length < 199).any()  # some fell
    balanced = make_env({"a": COSINE}, evaluation=True, overrides=["task.env.episodeLength=10"])
    episodes = run_episodes(balanced, lambda obs: torch.zeros(N, 1), rounds=1, first_step=0)
    assert (episodes.length == balanced.full_episode).any()
    assert episodes.fitness.max() == 1.0


def test_evaluation_of_a_group_is_independent_of_other_groups():
    # counts its calls: more of them, after its own last episode, would show
    counting = """
CALLS = []
ACTION_DIM = 2
def compute_torque(action, state_dict):
    CALLS.append(1)
    push = torch.full_like(state_dict["dof_pos"], 400.0)
    return push * (len(CALLS) % 7 - 3) / 3
"""
    gentle = "ACTION_DIM = 1\ndef compute_torque(action, state_dict):\n    return 0.0 * state_dict['dof_pos']\n"
    alone = make_env({"a": COSINE + counting}, evaluation=True)
    among = make_env({"a": COSINE + counting, "b": COSINE + gentle}, evaluation=True)
    played = [
        run_episodes(env, lambda obs, e=env: torch.zeros(e.num_envs, max(e.action_dims)), rounds=3, first_step=0)
        for env in (alone, among)
    ]
    assert not torch.equal(played[1].length[0], played[1].length[1])
    assert torch.equal(played[0].fitness[0], played[1].fitness[0])
    assert torch.equal(played[0].length[0], played[1].length[0])


def test_environment_resumes_bitwise_from_its_state():
    env, other = (make_env({"a": COSINE, "b": STATE_AS_REWARD}) for _ in range(2))
    actions = torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, (40, 2 * N, 1)).astype(np.float32))
    env.reset()
    for action in actions[:20]:
        env.step(action)
    other.set_state(env.get_state())
    for action in actions[20:]:
        a, b = env.step(action), other.step(action)
        assert torch.equal(a.obs, b.obs)
        assert torch.equal(a.reward, b.reward)
        assert torch.equal(a.terminated, b.terminated) and torch.equal(a.truncated, b.truncated)
    assert torch.equal(env.stats.shaped_return(), other.stats.shaped_return())
