"""Bad input to tasks of Isaac Lab: one clear line, and exit code 2."""

import gc
import importlib
import os
import subprocess
import sys

import gymnasium
import pytest

import isaaclab_mujoco
from envcoder_bench.sources.isaaclab_tasks import source
from envcoder_bench.sources.isaaclab_tasks.source import find_source, task_ids
from isaaclab_mujoco import checkout

WALK = "isaaclab:small_lab:Small-Walk-v0"


def refused(task):
    with pytest.raises(ValueError) as error:
        from envcoder_bench.sources.registry import find_spec

        find_spec(task)
    return str(error.value)


@pytest.fixture
def register():
    """Return a function that registers a task of the tests for one of them."""
    find_source(WALK)
    import small_lab

    names = []

    def of(name, change, cfg=None, **options):
        def walk():
            made = small_lab.WalkCfg()
            change(made)
            return made

        cfg = cfg or walk
        cfg.__module__ = "small_lab"
        small_lab.register(name, cfg, **options)
        names.append(name)
        return f"isaaclab:small_lab:{name}"

    yield of
    for name in names:
        del gymnasium.registry[name]


def told(path):
    """What the command says with this ISAACLAB_PATH, in a process that has not imported Isaac Lab."""
    code = "import sys; from envcoder_bench.cli.eval_shapers import main; sys.exit(main())"
    words, env = ["--task", WALK, "--describe"], {**os.environ, checkout.VARIABLE: str(path)}
    done = subprocess.run([sys.executable, "-c", code, *words], env=env, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.strip().splitlines()
    return line


@pytest.mark.slow
def test_without_isaac_lab_the_line_says_what_to_set(tmp_path):
    line = told(tmp_path)
    assert "is not a checkout of Isaac Lab" in line and "set ISAACLAB_PATH" in line


@pytest.mark.slow
def test_another_version_is_named(tmp_path):
    package = tmp_path / "source" / "isaaclab" / "isaaclab"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (tmp_path / "VERSION").write_text("3.0.0\n")
    assert "is Isaac Lab 3.0.0; isaaclab_mujoco runs 2.0 to 2.3" in told(tmp_path)


@pytest.mark.parametrize("module, installed, said", [
    ("isaaclab_mujoco", [], "the module isaaclab_mujoco is missing: pip install isaaclab-mujoco"),
    ("isaaclab.envs", [], "has no module isaaclab.envs: set ISAACLAB_PATH"),
    ("prettytable", [], "prettytable is missing, which Isaac Lab imports: pip install isaaclab-mujoco"),
    ("prettytable", ["isaaclab-mujoco"], "which Isaac Lab imports: pip install the package with prettytable"),
])  # fmt: skip
def test_what_is_not_installed_is_named_with_what_brings_it(monkeypatch, module, installed, said):
    monkeypatch.setitem(sys.modules, module, None)  # its import raises, as of a module that is missing
    monkeypatch.setattr(isaaclab_mujoco, "install", lambda: importlib.import_module(module))  # as Isaac Lab would
    monkeypatch.setattr(source, "distributions", lambda name: installed)
    with pytest.raises(ValueError) as error:
        find_source(WALK)  # the registry keeps what earlier tests found
    assert said in str(error.value)


def test_unknown_names_have_near_matches():
    assert "(did you mean Small-Walk-v0" in refused("isaaclab:small_lab:Small-Wlak-v0")
    assert "a_package_of_nobody is missing" in refused("isaaclab:a_package_of_nobody:Task")


def test_a_task_is_found_by_its_own_package_alone():
    find_source("isaaclab:small_own:small_legs")
    assert "no_such_package is missing" in refused("isaaclab:no_such_package:small_legs")
    line = refused("isaaclab:small_lab:small_legs")
    assert "a task of small_own, not of small_lab: give --task isaaclab:small_own:small_legs" in line
    assert "small_legs" in task_ids("small_own") and not {"small_legs"} & {*task_ids(), *task_ids("small_o")}


def test_what_a_class_of_its_own_lacks_is_named(monkeypatch):
    find_source("isaaclab:small_own:small_legs")
    import small_own

    def unlike(cfg, owner, key):
        monkeypatch.setitem(registry.task_classes, name := f"small_without_{key}", small_own.Own)
        delattr(owner(cfg), key)
        monkeypatch.setitem(registry.env_cfgs, name, cfg)
        monkeypatch.setitem(registry.train_cfgs, name, small_own.small_lab.RunnerCfg())
        monkeypatch.setitem(gymnasium.registry, name, None)  # it is taken out at the end
        del gymnasium.registry[name]
        return refused(f"isaaclab:small_own:{name}")

    registry = small_own.task_registry
    assert "OwnCfg, has no domain_rand.events" in unlike(small_own.OwnCfg(), lambda cfg: cfg, "domain_rand")
    assert "OwnCfg, has no sim.decimation" in unlike(small_own.OwnCfg(), lambda cfg: cfg.sim, "decimation")
    monkeypatch.setitem(registry.task_classes, "small_alone", small_own.Own)
    assert "task_registry of small_own has no env_cfgs['small_alone']" in refused("isaaclab:small_own:small_alone")
    find_source("isaaclab:small_own:small_plain")  # the others do not notice


def test_what_is_not_supported_is_named(register, monkeypatch):
    from isaaclab.envs import DirectMARLEnv, DirectRLEnv
    from isaaclab.sensors import CameraCfg
    from isaaclab.sim import PinholeCameraCfg

    def camera(cfg):
        cfg.scene.camera = CameraCfg(
            prim_path="{ENV_REGEX_NS}/Camera", spawn=PinholeCameraCfg(), width=8, height=8, data_types=["rgb"]
        )

    def clock(cfg):
        cfg.events.push.is_global_time = True

    def unknown_robot(cfg):
        cfg.scene.robot.spawn.usd_path = "omniverse://nowhere/unknown.usd"

    def unlike(cfg):
        cfg.observations.policy.concatenate_terms = False

    assert "cameras are not in isaaclab_mujoco" in refused(register("Small-Camera-v0", camera))
    assert "the event 'push' has one clock for all environments" in refused(register("Small-Clock-v0", clock))
    assert "unknown.usd: no URDF or MJCF is known for it" in refused(register("Small-Robot-v0", unknown_robot))
    assert "['policy'].concatenate_terms is False" in refused(register("Small-Terms-v0", unlike))
    agents = register("Small-Agents-v0", lambda cfg: None, entry_point=DirectMARLEnv)
    assert "its environment is DirectMARLEnv, a class of its own" in refused(agents)
    unlike = register("Small-Unlike-v0", lambda cfg: None, entry_point=DirectRLEnv)
    assert "its config is a WalkCfg, not a DirectRLEnvCfg" in refused(unlike)
    alone = register("Small-Alone-v0", lambda cfg: None, rsl_rl_cfg_entry_point=None)
    assert "has no settings of PPO" in refused(alone)


def test_direct_environments_are_refused_in_a_line(register, monkeypatch):
    find_source("isaaclab:small_direct:Small-Plain-v0")
    import small_direct

    from isaaclab_mujoco.stage.prims import STAGE

    def clock():
        cfg = small_direct.DrawingCfg()
        cfg.events = dict(vars(cfg.events))
        cfg.events["push"].is_global_time = True
        return cfg

    def unknown_robot():
        cfg = small_direct.PlainCfg()
        cfg.scene.robot.spawn.usd_path = "omniverse://nowhere/unknown.usd"
        return cfg

    address = register("Small-Direct-Clock-v0", None, cfg=clock, entry_point=small_direct.Legs)
    assert "the event 'push' has one clock for all environments" in refused(address)
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    address = register("Small-Direct-Robot-v0", None, cfg=unknown_robot, entry_point=small_direct.Legs)
    assert "unknown.usd: no URDF or MJCF is known for it" in refused(address)
    STAGE.add("/World/later", "Xform")
    gc.collect()
    assert not unraisable and STAGE.GetPrimAtPath("/World/later")
