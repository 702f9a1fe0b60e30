"""Scripts for Isaac Lab in a process of their own, and what bad input to them says."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from lab_robots import write

from isaaclab_mujoco import checkout
from isaaclab_mujoco.__main__ import main
from isaaclab_mujoco.assets import find, robots
from isaaclab_mujoco.errors import AssetNotFound, NotSupported, UserError, line_of
from isaaclab_mujoco.import_hook import renamed

HELPERS = Path(__file__).parent / "helpers"
# as the scripts of forks: flags, the application, then the rest; a config of the tests stands for the fork's
SCRIPT = """
import argparse, sys
from isaaclab.app import AppLauncher
parser = argparse.ArgumentParser()
parser.add_argument("--num_envs", type=int, default=None)
AppLauncher.add_app_launcher_args(parser)
args = parser.parse_args()
app = AppLauncher(args).app

import gymnasium as gym
import isaaclab, torch
from isaaclab.envs import ManagerBasedRLEnv
from lab_configs import CartpoleEnvCfg
gym.register("Cart", entry_point="isaaclab.envs:ManagerBasedRLEnv", kwargs={})

def make():
    cfg = CartpoleEnvCfg()
    cfg.scene.num_envs, cfg.sim.device = args.num_envs, args.device
    return gym.make("Cart", cfg=cfg)
"""
TRAIN = """
from isaaclab_rl.rsl_rl import RslRlOnPolicyRunnerCfg, RslRlPpoActorCriticCfg, RslRlPpoAlgorithmCfg, RslRlVecEnvWrapper
from rsl_rl.runners import OnPolicyRunner
policy = RslRlPpoActorCriticCfg(
    init_noise_std=1.0, actor_hidden_dims=[16], critic_hidden_dims=[16], activation="elu",
    actor_obs_normalization=False, critic_obs_normalization=False)
algorithm = RslRlPpoAlgorithmCfg(
    value_loss_coef=1.0, use_clipped_value_loss=True, clip_param=0.2, entropy_coef=0.005, num_learning_epochs=2,
    num_mini_batches=2, learning_rate=1e-3, schedule="adaptive", gamma=0.99, lam=0.95, desired_kl=0.01,
    max_grad_norm=1.0)
agent = RslRlOnPolicyRunnerCfg(
    num_steps_per_env=8, max_iterations=2, save_interval=50, experiment_name="cart", policy=policy, algorithm=algorithm,
    obs_groups={}, device=args.device)
env = RslRlVecEnvWrapper(make())
runner = OnPolicyRunner(env, agent.to_dict(), log_dir="log", device=agent.device)
runner.learn(num_learning_iterations=2)
env.close()
app.close()
"""
PLAY = """
env, count = make(), 0
observation, _ = env.reset()
while app.is_running():
    observation, *_ = env.step(torch.zeros(args.num_envs, 1))
    count += 1
import omni.isaac.lab.envs
print("steps", count, omni.isaac.lab.envs is sys.modules["isaaclab.envs"], isaaclab.__file__)
"""


def run(folder, text, *words, flags=(), **variables):
    """Run a script by ``python -m isaaclab_mujoco``; return the exit code, the output and the errors."""
    (folder / "script.py").write_text(text)
    files = [word for name, file in write(folder).items() for word in ("--asset", f"{name}={file}")]
    packages = HELPERS.parents[2]
    path = os.pathsep.join([str(HELPERS), str(packages), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "isaaclab_mujoco", *files, *flags, str(folder / "script.py"), *words]
    variables = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **variables}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


def test_a_script_trains_with_rsl_rl(tmp_path):
    code, out, err = run(tmp_path, SCRIPT + TRAIN, "--num_envs", "8", "--headless")
    assert code == 0, err[-3000:]
    assert "Learning iteration 1/2" in out and list((tmp_path / "log").glob("model_*.pt"))
    assert "on MuJoCo's physics, not on Isaac Sim" in err


def test_a_script_plays_for_some_updates_on_2_2(tmp_path):
    """It is Isaac Lab 2.2.0, whose modules of the stage are others, with the names of 1.x."""
    older = Path(sys.prefix) / "isaaclab-2.2"
    assert older.is_dir(), "make test-isaaclab installs it"
    code, out, err = run(
        tmp_path, SCRIPT + PLAY, "--num_envs", "2", flags=("--updates", "7", "--asked"), ISAACLAB_PATH=str(older)
    )
    assert code == 0, err[-3000:]
    assert f"steps 7 True {older}" in out
    assert "functions of Omniverse that did nothing" in err and "omni.timeline.Timeline" in err


def refused(folder, monkeypatch, capsys, *words):
    """Run the runner in this process; return its one line."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["isaaclab_mujoco", *map(str, words)])
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    assert main() == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("isaaclab_mujoco: ")
    return lines[0]


def test_bad_input_is_one_line(tmp_path, monkeypatch, capsys):
    assert "no.py is not a file" in refused(tmp_path, monkeypatch, capsys, "no.py")
    (tmp_path / "s.py").write_text("import a_package_of_nobody")
    assert "the module a_package_of_nobody is missing" in refused(tmp_path, monkeypatch, capsys, "s.py")
    assert "--asset x: give NAME=FILE" in refused(tmp_path, monkeypatch, capsys, "--asset", "x", "s.py")
    (tmp_path / "s.py").write_text("from isaaclab.sim import NoSuchName")
    assert "another version of Isaac Lab" in refused(tmp_path, monkeypatch, capsys, "s.py")
    (tmp_path / "s.py").write_text("import hid\nclass Mine(hid.device):\n    pass\nhid.device()")
    assert "hid.device was called, and hid is not installed" in refused(tmp_path, monkeypatch, capsys, "s.py")
    (tmp_path / "assets.yaml").write_text("- a\n- b")
    assert "assets.yaml: it must have lines NAME: FILE" in refused(tmp_path, monkeypatch, capsys, "s.py")


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch has CUDA")
def test_tensors_on_a_device_that_is_not_here_are_one_line():
    with pytest.raises((AssertionError, RuntimeError)) as error:
        torch.zeros(1, device="cuda")
    assert "CUDA" in line_of(error.value) and "the device cpu" in line_of(error.value)


def test_cameras_and_video_are_refused(tmp_path, monkeypatch, capsys):
    start = "from isaaclab.app import AppLauncher\nAppLauncher({'enable_cameras': True})"
    (tmp_path / "s.py").write_text(start)
    assert "cameras are not in isaaclab_mujoco" in refused(tmp_path, monkeypatch, capsys, "s.py")


def test_checkouts_of_other_versions_are_refused(tmp_path, monkeypatch):
    def message(path):
        monkeypatch.setenv(checkout.VARIABLE, str(path))
        with pytest.raises(UserError) as error:
            checkout.find()
        return str(error.value)

    assert "is not a checkout of Isaac Lab" in message(tmp_path / "nothing")
    (tmp_path / "one" / "source" / "extensions" / "omni.isaac.lab").mkdir(parents=True)
    assert "is Isaac Lab 1.x" in message(tmp_path / "one")
    package = tmp_path / "three" / "source" / "isaaclab" / "isaaclab"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (tmp_path / "three" / "VERSION").write_text("2.3.0\n")
    monkeypatch.setenv(checkout.VARIABLE, str(tmp_path / "three"))
    assert checkout.find() == tmp_path / "three" / "source"
    (tmp_path / "three" / "source" / "isaaclab_newton").mkdir()
    assert "isaaclab_mujoco runs 2.0 to 2.3" in message(tmp_path / "three")
    monkeypatch.delenv(checkout.VARIABLE)
    monkeypatch.setattr(checkout.PathFinder, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="Isaac Lab was not found: set ISAACLAB_PATH to a checkout"):
        checkout.find()


def test_a_robot_is_answered_by_the_first_file_that_is_known(tmp_path, monkeypatch):
    monkeypatch.setattr(find, "given", {})
    monkeypatch.setattr(find, "roots", [tmp_path])
    with pytest.raises(AssetNotFound, match=r"dog\.usd: no URDF.* Tried dog\.urdf, dog\.xml.* --asset dog\.usd=FILE"):
        find.robot_file("omniverse://server/dog.usd")
    beside, installed = tmp_path / "models" / "dog.urdf", tmp_path / "a" / "site-packages" / "dog.urdf"
    for file in (beside, installed, tmp_path / ".venv" / "dog.urdf"):
        file.parent.mkdir(parents=True)
        file.write_text("<robot/>")
    find._files.cache_clear()
    assert find.robot_file("omniverse://server/dog.usd") == beside
    other = tmp_path / "small" / "urdf" / "dog.urdf"
    other.parent.mkdir(parents=True)
    other.write_text("<robot/>")
    find._files.cache_clear()
    assert find.robot_file("omniverse://server/big/usd/dog.usd") == beside
    assert find.robot_file("omniverse://server/small/usd/dog.usd") == other
    (tmp_path / "assets.yaml").write_text("dog.usd: models/dog.urdf\ncat: cat.xml\n")
    find.read_assets_file(tmp_path / "assets.yaml")
    assert find.robot_file("https://x/dog.usd") == beside
    with pytest.raises(UserError, match=r"cat\.xml does not exist, and assets.yaml or --asset has it for cat"):
        find.robot_file("/x/cat.usd")


def test_packages_of_a_project_are_those_that_its_installation_would_add(tmp_path):
    for file in ("source/a/a/__init__.py", "exts/b/setup.py", "src/c/__init__.py", "pyproject.toml", "rsl_rl/setup.py"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    (tmp_path / "source" / "docs").mkdir()
    folders = [tmp_path / name for name in ("source/a", "exts/b", "rsl_rl", "src")]
    assert checkout.project_packages(tmp_path) == list(map(str, folders))
    assert checkout.project_of(tmp_path / "src" / "c" / "scripts" / "train.py") == tmp_path
    (tmp_path / "source" / "a" / "setup.py").touch()
    assert checkout.project_of(tmp_path / "source" / "a" / "scripts" / "train.py") == tmp_path


@pytest.mark.parametrize("merged", [None, True])
def test_fixed_joints_stay_unless_the_config_merges_them(tmp_path, merged):
    (tmp_path / "leg.urdf").write_text("""<robot name="leg"><link name="base"/><link name="foot"/>
        <joint name="ankle" type="fixed"><parent link="base"/><child link="foot"/></joint></robot>""")
    cfg = SimpleNamespace(**({} if merged is None else {"merge_fixed_joints": merged}))
    asset = robots.from_file(tmp_path / "leg.urdf", "leg.usd", cfg)
    assert asset.body_names == (["base"] if merged else ["base", "foot"])


SLIDES = "".join(f"<joint type='slide' axis='{axis}'/>" for axis in ("1 0 0", "0 1 0", "0 0 1"))


@pytest.mark.parametrize(
    "joints, free",
    [
        ("<freejoint/>", True),
        ("<joint type='free'/>", True),
        (SLIDES + "<joint type='ball'/>", True),
        (SLIDES + SLIDES.replace("slide", "hinge"), True),
        ("", False),
    ],
)
def test_a_root_of_an_mjcf_is_free_by_a_joint_or_by_those_that_free_it(tmp_path, joints, free):
    (tmp_path / "dog.xml").write_text(f"<mujoco><worldbody><body name='base'>{joints}</body></worldbody></mujoco>")
    assert robots._is_fixed(tmp_path / "dog.xml") is not free


@pytest.mark.parametrize(
    "joints, named",
    [
        ("<joint name='slider'/>", "joint slider"),
        ("<joint type='slide'/>", "joint of type slide"),
        ("<joint type='hinge'/><joint type='ball'/>", "joint of type hinge"),
        ("<joint name='root' type='free'/><joint name='extra'/>", "joint extra"),
        (3 * "<joint type='slide'/>" + "<joint type='ball'/>", "joint of type slide"),
        (SLIDES + 3 * "<joint/>", "joint of type slide"),
    ],
)
def test_a_root_of_an_mjcf_that_joints_half_free_is_refused(tmp_path, joints, named):
    (tmp_path / "dog.xml").write_text(f"<mujoco><worldbody><body name='base'>{joints}</body></worldbody></mujoco>")
    with pytest.raises(UserError, match=f"base has the {named}, which .* put the body into one without a joint"):
        robots._is_fixed(tmp_path / "dog.xml")


def test_names_that_a_robot_has_not_come_with_its_file(make):
    import lab_configs
    from isaaclab.managers import SceneEntityCfg

    cfg = lab_configs.LeggedEnvCfg()
    cfg.rewards.hooves = mdp_term(SceneEntityCfg("robot", body_names=".*_hoof"))
    with pytest.raises(ValueError, match="hoof") as error:
        make(cfg)
    line = line_of(error.value)
    assert (
        ".*_hoof: []" in line
        and "legged.usd is " in line
        and line.endswith("'NAME: FILE' in assets.yaml, or --asset NAME=FILE before a script")
    )


def mdp_term(asset_cfg):
    from isaaclab.envs import mdp
    from isaaclab.managers import RewardTermCfg

    return RewardTermCfg(func=mdp.body_lin_acc_l2, weight=1.0, params={"asset_cfg": asset_cfg})


def test_wrappers_of_isaac_lab_1_are_in_isaaclab_rl():
    assert renamed("omni.isaac.lab_tasks.utils.wrappers.rsl_rl") == "isaaclab_rl.rsl_rl"
    assert renamed("omni.isaac.lab_tasks.utils.hydra") == "isaaclab_tasks.utils.hydra"


def test_what_is_out_is_named_where_it_is_in_the_config(make):
    import lab_configs
    from isaaclab.assets import DeformableObjectCfg
    from isaaclab.sensors import CameraCfg
    from isaaclab.sim import MeshCuboidCfg, PinholeCameraCfg

    camera = CameraCfg(
        prim_path="{ENV_REGEX_NS}/Camera", spawn=PinholeCameraCfg(), width=8, height=8, data_types=["rgb"]
    )
    soft = DeformableObjectCfg(prim_path="{ENV_REGEX_NS}/Soft", spawn=MeshCuboidCfg(size=(0.1, 0.1, 0.1)))
    for name, entity, words in (("camera", camera, "cameras are not"), ("soft", soft, "deformable objects are not")):
        cfg = lab_configs.CartpoleEnvCfg()
        setattr(cfg.scene, name, entity)
        with pytest.raises(NotSupported, match=f"{words} in isaaclab_mujoco; remove it from the config"):
            make(cfg)


def test_a_robot_without_a_file_is_named(make):
    import lab_configs

    cfg = lab_configs.CartpoleEnvCfg()
    cfg.scene.robot.spawn.usd_path = "omniverse://nowhere/unknown.usd"
    with pytest.raises(AssetNotFound, match=r"unknown\.usd: no URDF or MJCF is known for it"):
        make(cfg)
