"""Domain randomization by IsaacGymEnvs' YAML files, on a pendulum in the style of IsaacGymEnvs."""

import math
import re
import sys

import isaac_helpers
import numpy as np
import pytest
import torch
import yaml
from isaac_helpers import FOLDER, environment, played

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.noise import EVALUATION_STEP
from envcoder_bench.run.prepare.environments import build_task
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.sources.isaacgym_tasks.random_actors import RandomActors
from envcoder_bench.sources.isaacgym_tasks.random_params import read_params
from envcoder_bench.tools.isolation import measure_isolation

UNIFORM = {"operation": "scaling", "distribution": "uniform"}
NORMAL = {"operation": "additive", "distribution": "gaussian"}
PARAMS = {
    "frequency": 10,
    "observations": {"range": [0.0, 0.01], "range_correlated": [0.0, 0.02], **NORMAL},
    "actions": {"range": [0.0, 0.1], **NORMAL},
    "sim_params": {"gravity": {"range": [0.0, 0.5], **NORMAL}},
    "actor_params": {
        "pendulum": {
            "color": True,
            "dof_properties": {
                "damping": {"range": [0.5, 2.0], "operation": "additive", "distribution": "loguniform"},
                "stiffness": {"range": [0.5, 1.5], "operation": "additive", "distribution": "uniform"},
            },
            "rigid_body_properties": {"mass": {"range": [0.5, 1.5], **UNIFORM, "setup_only": True}},
        },
        "ball": {
            "scale": {"range": [0.8, 1.2], **UNIFORM, "setup_only": True},
            "rigid_body_properties": {"mass": {"range": [0.5, 1.5], **UNIFORM}},
            "rigid_shape_properties": {"friction": {"range": [0.5, 1.5], **UNIFORM, "num_buckets": 10}},
        },
    },
}
FALLS = "def compute_terminal(dof_vel):\n    return dof_vel[:, 0].abs() > 1.0\n"


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Return a function that makes the config of the pendulum with ``randomization_params``."""
    monkeypatch.setenv("ENVCODER_BENCH_CACHE", str(tmp_path / "cache"))
    for module in [x for x in sys.modules if f"{x}.".startswith("envcoder_bench.tasks.Rod.")]:
        monkeypatch.delitem(sys.modules, module)  # the same name with another YAML, from other tests

    def made(*overrides, params=PARAMS, name="Rod", drive="effort"):
        own = yaml.safe_load((FOLDER / "pendulum.yaml").read_text())
        own["env"].update(ball=True, drive=drive)
        own["task"] = {"randomize": True, "randomization_params": params}
        file = tmp_path / f"own{len(list(tmp_path.glob('own*')))}.yaml"
        file.write_text(yaml.safe_dump(own, sort_keys=False))
        return isaac_helpers.config(f"{FOLDER}/pendulum.py:{name}@{file}", *overrides)

    return made


def groups(cfg, **texts):
    made, faults = isaac_helpers.groups(cfg, **texts)
    assert not faults
    return made


def samples(env):
    return env.task._randomizer._actors.samples


def gravity(env):
    return torch.from_numpy(env.task.isaac.sim.engine._properties.gravity.copy())


def mass(env, index, actor=0):
    isaac = env.task.isaac
    return [body.mass for body in isaac.gym.get_actor_rigid_body_properties(isaac.envs[index], actor)]


@pytest.mark.slow
def test_groups_of_one_seed_get_equal_randomization_independent_of_terminations(config):
    cfg = config("task.env.episodeLength=15")
    human, falls = groups(cfg, falls=FALLS)
    env = environment(cfg, [human, falls, human], [0, 0, 1])
    env.reset()
    for key, x in samples(env).items():
        first, second, other = env.layout.split(x)
        assert torch.equal(first, second) and not bool((first == other).any()), key
        assert len(set(first[:, 0].tolist())) == 4, key
    begun = gravity(env)
    ended = sum(step.done.view(3, 4).sum(dim=1) for step in played(env, 40))
    assert ended[1] > ended[0] > 0
    first, second, other = env.layout.split(gravity(env))
    assert torch.equal(first, second) and not torch.equal(first, other) and not torch.equal(first, begun[:4])
    assert bool((first == first[0]).all())  # one gravity for a group


@pytest.mark.slow
def test_original_values_that_differ_between_environments_are_those_of_the_lane(config, monkeypatch):
    def unequal(self, *args, init=RandomActors.__init__):
        init(self, *args)
        for x in self._originals.values():
            x += 0.1 * np.arange(len(x)).reshape(-1, *[1] * (x.ndim - 1))

    monkeypatch.setattr(RandomActors, "__init__", unequal)
    cfg = config()
    (human,) = groups(cfg)
    env = environment(cfg, [human, human], [0, 0])
    env.reset()
    masses = [[mass(env, k, actor) for actor in (0, 1)] for k in range(8)]
    assert masses[:4] == masses[4:] and masses[0] != masses[1]


@pytest.mark.slow
def test_acceleration_follows_the_gravity_of_each_group(config):
    """Without an effort the rod's first acceleration is m g l sin(angle) / I."""
    params = {"frequency": 1000, "sim_params": {"gravity": {"range": [0.0, 3.0], **NORMAL}}, "actor_params": {}}
    cfg = config(params=params)
    (human,) = groups(cfg)
    env = environment(cfg, [human] * 3, [0, 1, 2])
    env.reset()
    angle = env.task.state["dof_pos"][:, 0].clone()
    env.step(torch.zeros_like(env.actions))
    speed = env.task.state["dof_vel"][:, 0]
    own = gravity(env)
    torque = 0.5 * (-own[:, 2] * torch.sin(angle) + own[:, 0] * torch.cos(angle))
    torch.testing.assert_close(speed, (torque / (0.1 + 0.25) * 0.02).float(), rtol=0.05, atol=0.01)
    assert len(set(own[:, 2].tolist())) == 3


@pytest.mark.slow
def test_properties_change_only_at_resets_after_the_frequency(config):
    cfg = config("task.env.episodeLength=8")  # 7 steps: every second reset is due
    env = environment(cfg, groups(cfg))
    env.reset()
    seen = [{key: x.clone() for key, x in samples(env).items()}]
    for k, step in enumerate(played(env, 43)):
        now = {key: x.clone() for key, x in samples(env).items()}
        changed = {key for key, x in now.items() if not torch.equal(x, seen[-1][key])}
        due = (k + 1) % 14 == 0
        assert bool(step.done.all()) == ((k + 1) % 7 == 0)
        assert changed == (set(now) - {"ball.scale", "pendulum.rigid_body_properties.mass"} if due else set())
        seen.append(now)


@pytest.mark.slow
def test_properties_are_the_original_values_with_the_samples_applied(config):
    cfg = config("task.env.episodeLength=8")
    env = environment(cfg, groups(cfg))
    isaac, gym = env.task.isaac, env.task.isaac.gym
    originals = [gym.get_actor_rigid_body_properties(isaac.envs[0], actor) for actor in (0, 1)]
    env.reset()
    for _ in range(4):
        now = {key: x[1] for key, x in samples(env).items()}
        rows = gym.get_actor_dof_properties(isaac.envs[1], 0)
        assert rows["damping"][0] == pytest.approx(now["pendulum.dof_properties.damping"][0].item())
        assert rows["stiffness"][0] == pytest.approx(now["pendulum.dof_properties.stiffness"][0].item())
        factors = now["pendulum.rigid_body_properties.mass"].tolist()
        assert mass(env, 1) == pytest.approx([f * body.mass for f, body in zip(factors, originals[0])])
        scale, factor = (now[f"ball.{name}"].item() for name in ("scale", "rigid_body_properties.mass"))
        (ball,) = gym.get_actor_rigid_body_properties(isaac.envs[1], 1)
        assert gym.get_actor_scale(isaac.envs[1], 1) == pytest.approx(scale)
        assert ball.mass == pytest.approx(originals[1][0].mass * scale**3 * factor)
        assert ball.inertia.y.y == pytest.approx(originals[1][0].inertia.y.y * scale**5 * factor)
        (shape,) = gym.get_actor_rigid_shape_properties(isaac.envs[1], 1)
        value = now["ball.rigid_shape_properties.friction"].item()
        assert shape.friction == pytest.approx(0.5 + 0.1 * math.floor((value - 0.5) / 0.1 + 1e-9))
        list(played(env, 14))


@pytest.mark.slow
def test_randomization_resumes_bitwise_from_a_checkpoint(config):
    cfg = config("task.env.episodeLength=8")
    human, falls = groups(cfg, falls=FALLS)
    env, other = environment(cfg, [human, falls]), environment(cfg, [human, falls])
    env.reset()
    list(played(env, 16))
    saved = env.get_state()
    other.set_state(saved)
    assert all(torch.equal(x, samples(other)[key]) for key, x in samples(env).items())
    assert torch.equal(gravity(env), gravity(other)) and mass(env, 5) == mass(other, 5)
    for one, two in zip(played(env, 16, seed=1), played(other, 16, seed=1)):
        assert torch.equal(one.obs, two.obs) and torch.equal(one.reward, two.reward) and torch.equal(one.done, two.done)
    env.set_state(saved)  # back again
    fresh = environment(cfg, [human, falls])
    fresh.set_state(saved)
    for one, two in zip(played(env, 16, seed=2), played(fresh, 16, seed=2)):
        assert torch.equal(one.obs, two.obs)


@pytest.mark.slow
def test_evaluation_randomization_is_independent_of_group_and_history(config):
    cfg = config("task.env.episodeLength=25")
    human, falls = groups(cfg, falls=FALLS)
    env, other = (environment(cfg, [human, falls], evaluation=True) for _ in range(2))
    other.reset()
    list(played(other, 30))

    def episodes(own):
        seen = [own.begin_all(EVALUATION_STEP)]
        for _ in range(20):
            own.advance(torch.zeros_like(own.actions))
            own.step_count += 1
            if own.step_count == EVALUATION_STEP + 15:
                own.begin_episodes(torch.tensor([True, True, False, False] * 2))
            seen.append(own.observe())
        return torch.stack(seen)

    one, two = episodes(env), episodes(other)
    assert torch.equal(one, two)
    first, second = one[:, :4], one[:, 4:]
    assert torch.equal(first, second)
    assert torch.equal(episodes(env), one)
    third = env.begin_all(EVALUATION_STEP + 25)
    assert not torch.equal(third, one[0])


@pytest.mark.slow
def test_schedule_grows_in_training_and_is_complete_in_evaluation(config):
    own = {"range": [1.0, 1.0], "operation": "additive", "distribution": "uniform"}
    params = {"frequency": 10, "sim_params": {"gravity": {**own, "schedule": "linear", "schedule_steps": 40}}}
    cfg = config(params={**params, "actor_params": {}})
    env = environment(cfg, groups(cfg))
    env.reset()
    seen = []
    for _ in played(env, 60):
        seen.append(round(gravity(env)[0, 2].item() + 9.81, 6))
    assert seen == [0.0] * 9 + [0.25] * 10 + [0.5] * 10 + [0.75] * 10 + [1.0] * 21
    env.begin_all(EVALUATION_STEP)
    assert gravity(env)[0, 2].item() == pytest.approx(-8.81)


WIDE = """
ACTION_DIM = 3
def compute_torque(action, dof_pos):
    return action[:, :1]
def compute_observation(dof_pos):
    return torch.zeros(dof_pos.shape[0], 7)
"""


@pytest.mark.slow
def test_noise_is_applied_to_observations_and_actions(config):
    noise = {"range": [0.5, 0.1], "range_correlated": [0.0, 2.0], **NORMAL}
    params = {"frequency": 20, "observations": noise, "actions": {"range": [0.0, 0.1], **NORMAL}}
    cfg = config("num_envs_per_candidate=500", "task.env.clipObservations=100", params=params)
    env = environment(cfg, groups(cfg, wide=WIDE), [0, 1])
    seen = [env.reset()[500:]]
    for _ in range(21):
        obs = env.step(torch.full(env.actions.shape, 0.25)).obs
        seen.append(obs[500:])
        assert bool((obs[:500, 4:] == 0.0).all())  # padding
        assert bool((env.actions[:500, 1:] == 0.0).all())
        done = env.actions[500:]
        assert done.mean().item() == pytest.approx(0.25, abs=0.01) and done.std().item() == pytest.approx(0.1, rel=0.1)
    noise = torch.stack(seen)  # the observation itself is 0
    constant = noise[:20].mean(dim=0) - 0.5
    assert constant.std().item() == pytest.approx(2.0, rel=0.1)
    assert (noise[:20] - constant).std().item() == pytest.approx(0.1, rel=0.1)
    assert (noise[20:] - constant).std().item() == pytest.approx(math.sqrt(8.0), rel=0.1)  # a new constant part
    assert not bool((noise[0] == noise[1]).any())


@pytest.mark.slow
def test_batched_noise_equals_noise_per_group(config, monkeypatch):
    """As on CUDA; padding stays 0."""
    cfg = config()
    env = environment(cfg, groups(cfg, wide=WIDE), [0, 1])
    env.reset()
    list(played(env, 3))
    by_group = env.observe()
    monkeypatch.setattr(env, "device", torch.device("meta"))
    torch.testing.assert_close(env.observe(), by_group)
    assert bool((by_group[:4, 4:] == 0.0).all()) and bool((by_group[4:] != 0.0).all())


@pytest.mark.slow
def test_task_reward_uses_the_noisy_action(config):
    cfg = config(params={"frequency": 20, "actions": {"range": [0.0, 0.3], **NORMAL}})
    env = environment(cfg, groups(cfg))
    env.reset()
    (step,) = played(env, 1)
    assert torch.equal(env.actions, env.task.isaac.actions)
    angle = env.task.state["dof_pos"][:, 0] - env.task.state["commands"][:, 0]
    torch.testing.assert_close(step.reward, torch.cos(angle) - 0.1 * env.actions[:, 0] ** 2)


TORQUE = "ACTION_DIM = 1\ndef compute_torque(action, dof_pos):\n    return 0.0 * dof_pos\n"


@pytest.mark.slow
def test_candidate_with_torques_keeps_its_drives_without_stiffness(config):
    strong = {"range": [400.0, 500.0], "operation": "additive", "distribution": "uniform"}
    params = {"frequency": 5, "actor_params": {"pendulum": {"dof_properties": {"stiffness": strong}}}}
    cfg = config("task.env.episodeLength=12", params=params, drive="position")
    env = environment(cfg, groups(cfg, motor=TORQUE))
    env.reset()
    list(played(env, 30))
    engine = env.task.isaac.sim.engine._properties
    assert bool((engine.stiffness[:4] > 400).all())
    assert bool((engine._spring[4:] == 0).all()) and bool((engine._bias[4:, :, 1] == 0).all())
    assert len(set(engine.stiffness[:4, 0].tolist())) == 4


@pytest.mark.slow
def test_randomized_candidates_are_isolated(config):
    cfg = config("num_envs_per_candidate=8", "task.env.episodeLength=20")
    human, falls = groups(cfg, falls=FALLS)
    measured = measure_isolation(RunSpec.of(cfg), human, falls, steps=45, iterations=1)
    assert measured.clean and measured.episodes >= 8, str(measured)


def changed(path, value):
    """The parameters with another value at a path; None removes the key."""
    made = yaml.safe_load(yaml.safe_dump(PARAMS))
    node, keys = made, path.split("/")
    for key in keys[:-1]:
        node = node[key]
    node[keys[-1]] = value
    return made


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("frequency", 0, "task.randomization_params.frequency must be a number of at least 1, got 0"),
        ("observations/distribution", "loguniform", "observations.distribution must be gaussian or uniform"),
        ("actions/operation", "add", "actions.operation must be additive or scaling, got 'add'"),
        ("actions/range", [0.1], "actions.range must be a list of two numbers, got [0.1]"),
        ("actions/rang", [0, 1], "actions has an unknown key 'rang' (did you mean range?)"),
        ("actions/schedule", "linear", "actions.schedule_steps must be a positive number, got 0"),
        ("actor_params/ball/rigid_shapes", {}, "ball.rigid_shapes is not a property"),
        ("actor_params/pendulum/dof_properties/damping/range", [0.0, 1.0], "must be positive for a loguniform"),
    ],
)
def test_invalid_parameters_are_named(path, value, told):
    with pytest.raises(ValueError, match=re.escape(told)) as error:
        read_params(changed(path, value))
    assert "\n" not in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("frequency", 0, "task.randomization_params.frequency must be a number of at least 1, got 0"),
        ("actor_params/pendulm", {}, "actor_params.pendulm: the task has no such actor (did you mean pendulum?)"),
        (
            "actor_params/ball/rigid_shape_properties/fricton",
            PARAMS["actions"],
            "fricton is not a number of this",
        ),
    ],
)
def test_parameters_that_do_not_fit_the_task_raise_one_line_errors(config, path, value, told):
    cfg = config(params=changed(path, value))
    with pytest.raises(UserError, match=re.escape(told)) as error:
        build_task(RunSpec.of(cfg), 3)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_custom_apply_randomizations_is_refused(config):
    told = r"Own, VecTask defines apply_randomizations\(dr_params, more\).*randomize=false"
    with pytest.raises(UserError, match=told):
        build_task(RunSpec.of(config(name="Own")), 3)
    assert not hasattr(
        build_task(RunSpec.of(config()), 3).source.task_class, "randomization_params"
    )  # it was there for a moment
    with pytest.raises(UserError, match=r"the task's YAML has no task\.randomization_params"):
        build_task(RunSpec.of(config(params=None)), 3)


def test_values_without_effect_are_logged(caplog):
    params = {**PARAMS, "gravity": {}, "sim_params": {"rest_offset": PARAMS["actions"]}}
    assert read_params(params).gravity is None
    assert "task.randomization_params: ignored, without effect: gravity" in caplog.text
    assert "sim_params: ignored, without effect: rest_offset" in caplog.text
    assert read_params({"sim_params": None, "actor_params": None}).frequency == 1.0  # AllegroKuka's YAML


def test_draws_match_the_distribution_of_the_yaml():
    own = read_params(PARAMS).actors["pendulum"]["dof_properties"]["damping"]
    seeds, lanes = torch.zeros(4000, dtype=torch.int64), torch.arange(4000)
    drawn = own.draw(seeds, lanes, 3, 0, 2)
    assert drawn.shape == (4000, 2) and 0.5 <= drawn.min() < 0.51 and 1.98 < drawn.max() <= 2.0
    assert np.log(drawn).mean() == pytest.approx(0.0, abs=0.02)
    assert np.log(drawn).std() == pytest.approx(math.log(4.0) / math.sqrt(12), rel=0.05)
    assert np.array_equal(own.draw(seeds[:5], lanes[:5], 3, 0, 2), drawn[:5])  # by the lane
    for step, frames in ((4, 0), (3, 0)):
        assert np.array_equal(own.draw(seeds, lanes, step, frames, 2), drawn) == (step == 3)
