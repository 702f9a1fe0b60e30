"""``isaacgym`` is importable on request alone, and old code finds what it needs only while it is asked for."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

from envcoder_bench.isaacgym.__main__ import main

# a task file as IsaacGymEnvs' are: imports first, then gymapi by its own name
SCRIPT = """
import gym
from gym import spaces
from isaacgym import gymapi, gymtorch
import isaacgym
import numpy as np, torch, pysdf, sys
assert spaces.Box(np.ones(2) * -np.Inf, np.ones(2) * np.Inf).shape == (2,)
g = gymapi.acquire_gym()
params = gymapi.SimParams()
params.gravity = gymapi.Vec3(0, 0, -10)
params.dt, params.substeps = 0.1, 1
sim = g.create_sim(0, -1, gymapi.SIM_PHYSX, params)
env = g.create_env(sim, gymapi.Vec3(), gymapi.Vec3(), 1)
g.create_actor(env, g.create_sphere(sim, 0.1, gymapi.AssetOptions()), gymapi.Transform(), "ball", 0, 0)
g.prepare_sim(sim)
root = gymtorch.wrap_tensor(g.acquire_actor_root_state_tensor(sim))
g.simulate(sim)
g.refresh_actor_root_state_tensor(sim)
print("velocity", round(root[0, 9].item(), 4), isaacgym.__implementation__, sys.argv[1:], __name__)
"""


def python(*args, cwd):
    return subprocess.run([sys.executable, *args], cwd=cwd, capture_output=True, text=True, timeout=120)


@pytest.mark.slow
def test_script_runs_unmodified_with_its_arguments(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    done = python("-m", "envcoder_bench.isaacgym", "train.py", "task=Ant", "-x", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "velocity -1.0 envcoder_bench on MuJoCo" in done.stdout
    assert "['task=Ant', '-x'] __main__" in done.stdout
    assert "not NVIDIA's" in done.stderr


@pytest.mark.parametrize("args, words", [(["gone.py"], "gone.py is not a file"), ([], "usage")])
def test_missing_script_is_refused(args, words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["envcoder_bench.isaacgym", *args])
    assert main() == 2 and words in capsys.readouterr().err


FAULTS = {
    "load_asset(None, 'here', 'gone.urdf', None)": "gone.urdf: the asset does not exist",
    "get_camera_image(1)": "gym.get_camera_image is not supported",
    "create_sim(0, 0, gymapi.SIM_FLEX, gymapi.SimParams())": "SIM_FLEX is not supported",
}


@pytest.mark.slow
def test_unsupported_calls_are_reported_with_the_line_of_the_script(tmp_path):
    for k, call in enumerate(FAULTS):
        (tmp_path / f"train_{k}.py").write_text(f"from isaacgym import gymapi\n\ngymapi.acquire_gym().{call}\n")
    code = f"""
        import sys
        from envcoder_bench.isaacgym.__main__ import main
        for k in range({len(FAULTS)}):
            sys.argv = ["", f"train_{{k}}.py"]
            assert main() == 2
    """
    done = python("-c", textwrap.dedent(code), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stderr.splitlines() if "train_" in line]
    assert len(told) == len(FAULTS)
    for k, (line, words) in enumerate(zip(told, FAULTS.values())):
        assert f"train_{k}.py:3: " in line and words in line


@pytest.mark.slow
def test_script_errors_keep_their_traceback(tmp_path):
    (tmp_path / "train.py").write_text("raise NotImplementedError('mine')\n")
    done = python("-m", "envcoder_bench.isaacgym", "train.py", cwd=tmp_path)
    assert done.returncode == 1 and "Traceback" in done.stderr and "mine" in done.stderr


@pytest.mark.slow
def test_existing_isaacgym_package_takes_precedence(tmp_path):
    (tmp_path / "isaacgym").mkdir()
    (tmp_path / "isaacgym" / "__init__.py").write_text("mark = 'theirs'\n")
    code = "from envcoder_bench.isaacgym import install; print(install()); import isaacgym; print(isaacgym.mark)"
    done = python("-c", code, cwd=tmp_path)
    assert done.stdout.split() == ["False", "theirs"], done.stderr


@pytest.mark.slow
def test_folder_named_isaacgym_is_not_a_package(tmp_path):
    (tmp_path / "isaacgym" / "python").mkdir(parents=True)
    code = "from envcoder_bench.isaacgym import install; print(install()); from isaacgym import gymapi"
    done = python("-c", code, cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.split() == ["True"], done.stderr


@pytest.mark.slow
def test_compatibility_modules_exist_only_on_request(tmp_path):
    code = """
        import envcoder_bench.isaacgym as ours, numpy as np, sys
        from envcoder_bench.isaacgym.compat import old_code
        def importable(name):
            try:
                __import__(name)
            except ImportError:
                return False
            return True
        def state():
            return importable("isaacgym.gymapi"), importable("gym"), importable("pysdf"), hasattr(np, "Inf")
        before = state()
        ours.install()
        with old_code():
            assert state() == (True, True, True, True)
            import pysdf
            try:
                pysdf.SDF(1)
            except ImportError as error:
                print(error)
        assert "gym" not in sys.modules
        from envcoder_bench.isaacgym.install import uninstall
        uninstall()
        assert state() == before, (state(), before)
    """
    done = python("-c", textwrap.dedent(code), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "pysdf.SDF is used, and pysdf is not installed"


@pytest.mark.slow
def test_install_works_after_redirected_helpers(tmp_path):
    code = """
        from envcoder_bench.shaping import redirect
        redirect.install()
        import isaacgym.torch_utils
        from envcoder_bench.isaacgym import install
        install()
        from isaacgym import gymapi
        import isaacgym
        from isaacgym.torch_utils import quat_mul
        print(isaacgym.__implementation__, gymapi.DOF_MODE_EFFORT)
    """
    done = python("-c", textwrap.dedent(code), cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("envcoder_bench on MuJoCo"), done.stderr


def test_old_numpy_names_exist_only_within_the_block():
    from envcoder_bench.isaacgym.compat import old_code

    before = set(np.__dict__)
    with pytest.raises(KeyError), old_code():
        assert np.Inf == np.inf
        raise KeyError
    assert set(np.__dict__) == before


def test_tkinter_import_works_without_tk(monkeypatch):
    from envcoder_bench.isaacgym import compat

    found = compat.find_spec
    monkeypatch.setattr(compat, "find_spec", lambda name: None if name == "_tkinter" else found(name))
    with compat.old_code():
        from tkinter import W
    with pytest.raises(ImportError, match=r"tkinter\.W is used, and tkinter is not installed"):
        W()


@pytest.mark.slow
def test_rl_games_agents_have_the_old_seq_len_attribute(tmp_path):
    script = """
        from rl_games.common.a2c_common import A2CBase
        class Agent(A2CBase):
            def __init__(self): self.seq_length = 4
        Agent.__abstractmethods__ = frozenset()
        print("seq_len", Agent().seq_len)
    """
    (tmp_path / "train.py").write_text(textwrap.dedent(script))
    done = python("-m", "envcoder_bench.isaacgym", "train.py", cwd=tmp_path)
    assert "seq_len 4" in done.stdout, done.stderr
