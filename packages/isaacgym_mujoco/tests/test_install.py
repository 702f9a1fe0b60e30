"""``isaacgym`` is importable on request alone, and old code finds what it needs only while it is asked for."""

import importlib
import pickle
import sys

import gymnasium  # its import sets an environment variable
import numpy as np
import pytest
import torch
from run_scripts import run_script

import isaacgym_mujoco as ours
from isaacgym_mujoco import old_code
from isaacgym_mujoco.__main__ import main
from isaacgym_mujoco.import_hook import uninstall
from isaacgym_mujoco.on_cpu import OnCpu

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
from rl_games.common.a2c_common import A2CBase
class Agent(A2CBase):
    def __init__(self): self.seq_length = 4
class OldAgent(Agent):  # of a repository's copy of rl_games
    def __init__(self): self.seq_len = 5
Agent.__abstractmethods__ = OldAgent.__abstractmethods__ = frozenset()
print("seq_len", Agent().seq_len, OldAgent().seq_len)
"""


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """A process without any ``isaacgym``, in a folder that scripts and packages are searched for in."""
    monkeypatch.setattr(sys, "meta_path", [f for f in sys.meta_path if type(f).__name__ != "_Redirect"])
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.chdir(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] == "isaacgym"]:
        monkeypatch.delitem(sys.modules, name)
    yield tmp_path
    uninstall()


def run(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["isaacgym_mujoco", *words])
    return main()


def importable(name):
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def assert_script_ran(out):
    assert f"velocity -1.0 isaacgym_mujoco {ours.__version__} on MuJoCo" in out
    assert "['task=Ant', '-x'] __main__" in out
    assert "seq_len 4 5" in out  # rl_games' agents have their old attribute


@pytest.mark.slow
def test_script_runs_unmodified_with_its_arguments(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)  # it imports rl_games
    assert_script_ran(run_script(tmp_path, "train.py", "task=Ant", "-x"))


@pytest.mark.parametrize("place", ["mine", "mine/scripts"])
def test_script_imports_its_own_package_without_an_installation(alone, place, monkeypatch, capsys):
    (alone / place).mkdir(parents=True)
    (alone / "mine" / "__init__.py").write_text("name = 'my package'\n")
    (alone / place / "train.py").write_text("import mine\nprint(mine.name)\n")
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(alone))])
    assert run(monkeypatch, f"{place}/train.py") == 0 and "my package" in capsys.readouterr().out


@pytest.mark.parametrize("args, words", [(["gone.py"], "gone.py is not a file"), ([], "usage")])
def test_missing_script_is_refused(args, words, monkeypatch, capsys):
    assert run(monkeypatch, *args) == 2 and words in capsys.readouterr().err


@pytest.mark.parametrize(
    "call, words",
    [
        ("load_asset(None, 'here', 'gone.urdf', None)", "gone.urdf: the asset does not exist"),
        ("get_camera_image(1)", "gym.get_camera_image is not supported"),
        ("create_sim(0, 0, gymapi.SIM_FLEX, gymapi.SimParams())", "SIM_FLEX is not supported"),
    ],
)
def test_unsupported_calls_are_reported_with_the_line_of_the_script(alone, call, words, monkeypatch, capsys):
    (alone / "train.py").write_text(f"from isaacgym import gymapi\n\ngymapi.acquire_gym().{call}\n")
    assert run(monkeypatch, "train.py") == 2
    message = capsys.readouterr().err
    assert "train.py:3: " in message and words in message


def test_refusal_that_another_error_wraps_is_reported_alone(alone, monkeypatch, capsys):
    """As Hydra's ``instantiate`` wraps it."""
    call = "try:\n    gymapi.acquire_gym().load_usd(1)\n"
    wrap = "except Exception as error:\n    raise RuntimeError('x') from error\n"
    (alone / "train.py").write_text(f"from isaacgym import gymapi\n{call}{wrap}")
    assert run(monkeypatch, "train.py") == 2
    assert "train.py:3: gym.load_usd is not supported" in capsys.readouterr().err.splitlines()[-1]


def test_script_errors_keep_their_traceback(alone, monkeypatch):
    (alone / "train.py").write_text("raise NotImplementedError('mine')\n")
    with pytest.raises(NotImplementedError, match="mine"):
        run(monkeypatch, "train.py")


def test_existing_isaacgym_package_takes_precedence(alone):
    (alone / "isaacgym").mkdir()
    (alone / "isaacgym" / "__init__.py").write_text("mark = 'theirs'\n")
    assert not ours.install()
    assert importlib.import_module("isaacgym").mark == "theirs"


def test_folder_named_isaacgym_is_not_a_package(alone):
    (alone / "isaacgym" / "python").mkdir(parents=True)
    assert ours.install() and importable("isaacgym.gymapi")


def test_compatibility_modules_exist_only_on_request(alone):
    def state():
        return *map(importable, ("isaacgym.gymapi", "gym", "pysdf")), hasattr(np, "Inf")

    before = state()
    ours.install()
    with old_code.old_code():
        assert state() == (True, True, True, True)
        with pytest.raises(ImportError, match=r"pysdf\.SDF is used, and pysdf is not installed"):
            importlib.import_module("pysdf").SDF(1)
    assert "gym" not in sys.modules
    uninstall()
    assert state() == before == (False, False, False, False)


def test_wrappers_of_old_gym_forward_attributes(alone):
    class Env(gymnasium.Env):
        num_obs = 3

        def reset(self):
            return "without a seed"

    reset = gymnasium.Wrapper.reset
    for _ in range(2):
        with old_code.old_code(), old_code.old_code():
            wrapped = importlib.import_module("gym").Wrapper(Env())
            assert wrapped.num_obs == 3 and wrapped.reset() == "without a seed"
            with pytest.raises(AttributeError, match="num_acts"):
                wrapped.num_acts  # noqa: B018
    assert gymnasium.Wrapper.reset is reset
    with pytest.raises(AttributeError):
        wrapped.num_obs  # noqa: B018


def test_wrappers_of_old_gym_take_any_environment_and_observations_alone(alone):
    """As SoloParkour's, around IsaacGymEnvs' VecTask."""

    class VecTask:
        def reset(self):
            return {"obs": 1}

        def step(self, action):
            return {"obs": action}, 0.5, True, {}

    with old_code.old_code():

        class Extract(importlib.import_module("gym").ObservationWrapper):
            def observation(self, observation):
                return observation["obs"]

        wrapped = Extract(VecTask())
        assert wrapped.reset() == 1 and wrapped.step(2) == (2, 0.5, True, {})
    with pytest.raises(TypeError):
        Extract(VecTask())


@pytest.mark.parametrize("condition", [[0, 2, 0], [False, True, False]])
def test_scripted_functions_take_integer_conditions_as_the_fuser_for_cuda_did(condition):
    """As UniDexGrasp's reward; torch itself has refused them ever since."""

    def score(x: torch.Tensor, done: torch.Tensor) -> torch.Tensor:
        return torch.where(done, x, -x) + torch.where(x > 2.0, 1.0, 0.0)

    script = torch.jit.script
    with old_code.old_code():
        scripted = torch.jit.script(score)

    assert torch.jit.script is script
    x = torch.tensor([1.0, 2.0, 3.0])
    assert scripted(x, torch.tensor(condition)).tolist() == [-1.0, 2.0, -2.0]


CUDA_SCRIPT = """
from typing import List
import torch
from run_scripts import run_script
from isaacgym import gymapi, gymutil
args = gymutil.parse_arguments(no_graphics=True)
params = gymapi.SimParams()
params.use_gpu_pipeline = True
sim = gymapi.acquire_gym().create_sim(0, 0, gymapi.SIM_PHYSX, params)
x = torch.zeros(2, device="cuda:0").to("cuda").to(torch.device("cuda:0")).cuda()
net = torch.compile(torch.nn.Linear(2, 1).to("cuda:0"))
@torch.jit.script
def flat(shape: List[int], device: str) -> torch.Tensor:
    return torch.zeros(shape + [1], device=device).view(-1)  # no list outside of TorchScript
@torch.jit.script
def zeros(x: torch.Tensor, device: str) -> torch.Tensor:
    return flat(x.shape, device)
torch.jit.script(torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.ELU())).save("policy.pt")
print(sim.device, net(zeros(torch.zeros(2), "cuda:0")).device, gymutil.parse_device_str("cuda:0"), args.pipeline)
"""


def test_script_that_names_cuda_devices_runs_on_the_cpu_on_request(alone, monkeypatch, capsys):
    (alone / "train.py").write_text(CUDA_SCRIPT)
    monkeypatch.setenv("ISAACGYM_DEVICE", "")  # so that what the runner sets is undone
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "")
    monkeypatch.delenv("TORCHDYNAMO_DISABLE")
    for flag in (["--device", "cpu"], ["--device=cpu"]):
        assert run(monkeypatch, *flag, "train.py") == 0
        assert capsys.readouterr().out == "cpu cpu ('cpu', 0) CPU\n"
    assert run(monkeypatch, "--no_such_flag", "train.py") == 2
    assert run(monkeypatch, "--device", "cuda:0", "train.py") == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("such as sim_device=cuda:0")


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_script_that_names_a_cuda_device_without_one_is_told_the_remedy(alone, monkeypatch, capsys):
    monkeypatch.setenv("ISAACGYM_DEVICE", "")
    script = "import torch\ntorch.cuda.set_device(0)\ntorch.cuda.synchronize()\nclass Drawer(torch.Generator): pass\n"
    script += "assert type(Drawer('cuda:0')) is Drawer and isinstance(Drawer(), torch.Generator)\n"
    script += "assert isinstance(torch.Generator(), torch.Generator) and not isinstance(torch.Generator(), Drawer)\n"
    script += "torch.rand(2, generator=torch.Generator(device='cuda:0'))\n"
    (alone / "train.py").write_text(script)
    assert run(monkeypatch, "--device=cpu", "train.py") == 0
    (alone / "train.py").write_text("import torch\ntorch.cuda.mem_get_info()\n")
    assert run(monkeypatch, "--device=cpu", "train.py") == 2 and "but not this call" in capsys.readouterr().err
    monkeypatch.setenv("ISAACGYM_DEVICE", "")
    for line in ("import torch\ntorch.zeros(2, device='cuda:0')\n", CUDA_SCRIPT):
        (alone / "train.py").write_text(line)
        assert run(monkeypatch, "train.py") == 2
        message = capsys.readouterr().err.strip().splitlines()[-1]
        assert "train.py:" in message and "--device cpu" in message


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_tensors_saved_on_a_cuda_device_are_loaded_without_one(tmp_path, monkeypatch):
    """As a policy for a play.py, and in-hand-rotation's pickled embeddings."""
    with monkeypatch.context() as saving:
        saving.setattr(torch.serialization, "location_tag", lambda storage: "cuda:0")
        torch.save({"weight": torch.ones(2)}, tmp_path / "policy.pt")
        pickled = pickle.dumps(torch.ones(2))
    with old_code.old_code(), OnCpu():
        assert torch.load(tmp_path / "policy.pt")["weight"].tolist() == pickle.loads(pickled).tolist() == [1, 1]
        assert torch.load(tmp_path / "policy.pt", map_location="cuda:0")["weight"].device.type == "cpu"
    with pytest.raises(RuntimeError, match="CUDA"):
        torch.load(tmp_path / "policy.pt")


class Settings:
    """What a learner saved beside its weights."""


@pytest.mark.parametrize("zipped", [True, False])
def test_checkpoint_with_more_than_weights_loads_within_the_block(tmp_path, caplog, zipped):
    """As rl_games' of 2022, with numbers of NumPy. torch 2.6 loads only weights unless told."""
    file = tmp_path / "old.pth"
    torch.save({"model": torch.ones(2), "settings": Settings()}, file, _use_new_zipfile_serialization=zipped)
    with pytest.raises(pickle.UnpicklingError):
        torch.load(file)
    with old_code.old_code():
        assert isinstance(torch.load(file)["settings"], Settings) and "old.pth has more than weights" in caplog.text
        with file.open("rb") as stream:
            assert isinstance(torch.load(stream)["settings"], Settings)
        with pytest.raises(pickle.UnpicklingError):
            torch.load(file, weights_only=True)
        with pytest.raises(FileNotFoundError):
            torch.load(tmp_path / "absent.pth")
    with pytest.raises(pickle.UnpicklingError):
        torch.load(file)


def test_old_numpy_names_exist_only_within_the_block():
    before = set(np.__dict__)
    with pytest.raises(KeyError), old_code.old_code():
        assert np.Inf == np.inf and np.array([1, 2], copy=False, dtype=np.float32).sum() == 3.0
        raise KeyError
    assert set(np.__dict__) == before
    with pytest.raises(ValueError, match="copy"):
        np.array([1, 2], copy=False)


def test_tkinter_import_works_without_tk(monkeypatch):
    find_spec = old_code.find_spec
    monkeypatch.setattr(old_code, "find_spec", lambda name: None if name == "_tkinter" else find_spec(name))
    with old_code.old_code():
        from tkinter import W
    with pytest.raises(ImportError, match=r"tkinter\.W is used, and tkinter is not installed"):
        W()
