"""One candidate's environments: equal to a group of a run, and what Gymnasium and others expect."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import envcoder_bench
from envcoder_bench import UserError, make_env
from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.run.inputs import resolve
from envcoder_bench.run.prepare.environments import build_task
from envcoder_bench.run.prepare.groups import prepare
from envcoder_bench.run.prepare.run_files import baseline_sources
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.sources.registry import find_spec

pytestmark = pytest.mark.slow  # loading a candidate compiles, which starts processes

NUM_ENVS, STEPS = 6, 120
SHORT = {"task.env.episodeLength": 40}
NOISY = """
ACTION_DIM = 2
def compute_reward(pole_angle, actions):
    return torch.cos(pole_angle) - 0.1 * actions[:, 1] + 0.01 * torch.rand_like(pole_angle)
def compute_torque(action, max_push_effort):
    return action * torch.stack((max_push_effort, torch.zeros_like(max_push_effort)))
def compute_observation(cart_pos, cart_vel, pole_angle, pole_vel, actions):
    return torch.stack((cart_pos, cart_vel, pole_angle, pole_vel, actions[:, 0]), dim=-1)
"""


def make(candidate=None, **more):
    return make_env("Cartpole", candidate, more.pop("num_envs", NUM_ENVS), device="cpu", overrides=SHORT, **more)


def reference(seed):
    """A GroupedVecTask with one group, made as a run makes it."""
    cfg = resolve(
        "Cartpole", ["device=cpu", "task.env.episodeLength=40", f"seed={seed}", "num_envs_per_candidate=6"]
    ).config
    noisy = envcoder_bench.run.folder.run_folder.CandidateSource("noisy", "noisy.py", NOISY)
    groups, faults = prepare(RunSpec.of(cfg, [*baseline_sources(find_spec("Cartpole")), noisy]))
    assert not faults
    layout = GroupLayout(1, NUM_ENVS)
    return GroupedVecTask(build_task(RunSpec.of(cfg), NUM_ENVS), layout, [groups[-1].shaping], [seed])


def random_actions(width, steps=STEPS):
    return 2.0 * torch.rand(steps, NUM_ENVS, width, generator=torch.Generator().manual_seed(1)) - 1.0


def assert_arrays(got, wanted):
    np.testing.assert_array_equal(got, wanted.numpy())


@pytest.mark.parametrize("seed", [0, 5])
def test_steps_are_bitwise_equal_to_those_of_a_group(seed):
    env, group = make({"noisy": NOISY}, seed=seed), reference(seed)
    games = make({"noisy": NOISY}, seed=seed, api="rl_games")
    info = games.get_env_info()
    assert info["observation_space"].shape == (5,) and info["action_space"] == gymnasium.spaces.Box(-1, 1, (2,))
    obs = group.reset()
    assert_arrays(env.reset(seed=seed)[0], obs)
    assert torch.equal(games.reset(), obs)
    ended = timed_out = 0
    for actions in random_actions(2) * torch.linspace(0.0, 1.0, NUM_ENVS)[:, None]:  # some episodes end by time
        step = group.step(actions, final_obs=True)
        obs, reward, terminated, truncated, infos = env.step(actions.numpy())
        for got, wanted in zip((obs, reward, terminated, truncated), step):
            assert_arrays(got, wanted)
        timed_out += int(step.truncated.sum())
        if step.done.any():
            ended += 1
            assert_arrays(infos["_final_obs"], step.done)
            for k in range(NUM_ENVS):
                assert (infos["final_obs"][k] is None) == (not step.done[k])
                if step.done[k]:
                    assert_arrays(infos["final_obs"][k], step.final_obs[k])
        else:
            assert infos == {}
        state, reward, done, infos = games.step(actions)
        assert torch.equal(state, step.obs) and torch.equal(reward, step.reward) and torch.equal(done, step.done)
        assert torch.equal(infos["time_outs"], step.truncated)
    assert ended > 2 and timed_out > 0


def test_environment_is_a_gymnasium_vector_env():
    env = make()
    assert isinstance(env, VectorEnv) and env.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    assert env.observation_space == batch_space(env.single_observation_space, NUM_ENVS)
    assert env.action_space == batch_space(env.single_action_space, NUM_ENVS)
    env.action_space.seed(0)
    obs, infos = env.reset(seed=1)
    assert obs in env.observation_space and infos == {}
    for _ in range(60):
        before = obs.copy()
        new, reward, terminated, truncated, infos = env.step(env.action_space.sample())
        np.testing.assert_array_equal(obs, before)  # a result is not overwritten by the next step
        obs = new
        assert obs in env.observation_space and obs.dtype == np.float32
        assert reward.shape == terminated.shape == truncated.shape == (NUM_ENVS,)
        assert terminated.dtype == truncated.dtype == np.bool_ and reward.dtype == np.float32
        assert not (terminated & truncated).any()
        for k in np.flatnonzero(terminated | truncated):
            assert infos["final_obs"][k] in env.single_observation_space
    env.close()
    assert env.closed and "Cartpole" in repr(env)


def test_equal_seeds_give_equal_episodes_and_others_do_not():
    env = make()
    actions = random_actions(1, 50).numpy()

    def episode(seed):
        return [env.reset(seed=seed)[0], *(env.step(each)[0] for each in actions)]

    first, other, again = episode(7), episode(8), episode(7)
    assert all(np.array_equal(a, b) for a, b in zip(first, again))
    assert not np.array_equal(first[0], other[0])
    assert not np.array_equal(first[0], episode(0)[0])
    starts = [env.reset()[0] for _ in range(3)]  # without a seed the next episodes begin elsewhere
    assert not np.array_equal(starts[0], starts[1]) and not np.array_equal(starts[1], starts[2])
    assert len({tuple(row) for row in first[0].tolist()}) == NUM_ENVS


def test_gymnasium_wrapper_records_episode_statistics():
    env = RecordEpisodeStatistics(make())
    env.reset(seed=0)
    lengths = []
    for _ in range(45):
        _, _, terminated, truncated, infos = env.step(np.zeros((NUM_ENVS, 1), np.float32))
        done = terminated | truncated
        if done.any():
            lengths += infos["episode"]["l"][done].tolist()
    assert lengths and max(lengths) <= 39


def test_evaluation_uses_the_unshaped_reward():
    env = make({"noisy": NOISY}, evaluation=True)
    env.reset(seed=0)
    reward = env.step(np.zeros((NUM_ENVS, 2), np.float32))[1]
    assert reward.tolist() == [1.0] * NUM_ENVS  # upright


def test_rsl_rl_environment_has_its_interface():
    pytest.importorskip("tensordict")
    env = make(api="rsl_rl")
    obs = env.get_observations()
    assert obs["policy"].shape == (NUM_ENVS, 4) and env.num_actions == 1
    obs, rewards, dones, extras = env.step(torch.zeros(NUM_ENVS, 1))
    assert obs["policy"].shape == (NUM_ENVS, 4) and rewards.shape == dones.shape == extras["time_outs"].shape
    assert env.episode_length_buf.tolist() == [1] * NUM_ENVS and env.max_episode_length == 39


FAILS = """
def compute_reward(pole_angle, progress_buf):
    if int(progress_buf.max()) > 5:
        raise RuntimeError("late")
    return pole_angle
"""


def test_candidate_fault_raises_with_its_line():
    env = make({"fails": FAILS})
    env.reset()
    with pytest.raises(UserError, match=r"candidate fails failed: fails.py:4: in compute_reward: .*late"):
        for _ in range(9):
            env.step(np.zeros((NUM_ENVS, 1), np.float32))


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda path: make_env("Cartpol"), "unknown task 'Cartpol' (did you mean Cartpole or CartpoleSwingup?)"),
        (lambda path: make_env("Cartpole", "nowhere.py"), "nowhere.py does not exist"),
        (lambda path: make_env("Cartpole", path), "make_env takes one candidate, and"),
        (lambda path: make_env("Cartpole", api="gymnasum"), "unknown api 'gymnasum' (did you mean gymnasium?)"),
        (lambda path: make_env("Cartpole", num_envs=0), "num_envs_per_candidate must be a whole number of at least 1"),
        (lambda path: make_env("Cartpole", seeds=3), "seeds is not a setting of make_env"),
        (lambda path: make_env("Cartpole", sedd=3), "unknown key 'sedd' (did you mean seed"),
        (
            lambda path: make({"bad": "def compute_reward(pole_angel):\n    return 0\n"}),
            "candidate bad cannot be used: bad.py:1",
        ),
        (lambda path: make().reset(options={"x": 1}), "reset has no options here, got x"),
        (lambda path: make().step(np.zeros((3, 1))), "actions of Cartpole with candidate human are (6, 1), got (3, 1)"),
    ],
)
def test_bad_input_raises_user_error(call, message, tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.py").write_text(NOISY)
    with pytest.raises(UserError) as error:
        call(tmp_path)
    assert message in str(error.value)


def test_skrl_wraps_the_environment():
    """skrl's wrapper, on which its agents train."""
    pytest.importorskip("skrl")
    from skrl.envs.wrappers.torch import wrap_env

    env = wrap_env(make(), verbose=False)
    assert (env.num_envs, env.num_agents) == (NUM_ENVS, 1) and isinstance(env.action_space, gymnasium.spaces.Box)
    obs, _ = env.reset()
    obs, reward, terminated, truncated, _ = env.step(torch.zeros(NUM_ENVS, 1))
    assert obs.shape == (NUM_ENVS, 4) and reward.shape == terminated.shape == truncated.shape == (NUM_ENVS, 1)


def test_rl_games_trains_on_the_environment(tmp_path, capsys):
    """With rl_games' own runner and agent, from the YAML of the task."""
    from rl_games.torch_runner import Runner

    from envcoder_bench.adapters.rl_games import register

    register("noisy-cartpole", "Cartpole", candidate={"noisy": NOISY}, device="cpu", overrides=SHORT)
    params = resolve("Cartpole", ["device=cpu"]).config.params
    params["config"].update(
        env_name="noisy-cartpole", num_actors=8, minibatch_size=64, device="cpu", max_epochs=3, train_dir=str(tmp_path),
        features={}, reward_shaper={"scale_value": 0.1}, print_stats=False,
    )  # fmt: skip
    del params["config"]["num_minibatches"]
    runner = Runner()
    runner.load({"params": {**params, "seed": 0}})
    runner.reset()
    runner.run({"train": True, "play": False})
    assert "MAX EPOCHS NUM!" in capsys.readouterr().out and list(tmp_path.rglob("*.pth"))
