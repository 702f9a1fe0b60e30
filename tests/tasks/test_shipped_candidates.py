"""Every shipped candidate passes the checks of a run and behaves as its docstring says."""

import inspect
import math

import pytest
import torch
from task_helpers import Functions, baseline, begin, candidate, fake, shipped, whole_state
from torch.utils._python_dispatch import TorchDispatchMode

from envcoder_bench.core import stream
from envcoder_bench.core.folders import project_folder
from envcoder_bench.shaping.checking import check
from envcoder_bench.shaping.contract import assemble
from envcoder_bench.shaping.loading import load_candidate
from envcoder_bench.shaping.source import inlined
from envcoder_bench.sources.registry import find_spec, task_names

FOLDER = project_folder("user_functions")
FILES = {name: sorted((FOLDER / name).glob("*.py")) for name in task_names()}
BASELINES = [(name, find_spec(name).baseline_path(which)) for name in task_names() for which in ("human", "unshaped")]
SPARSE = [(name, find_spec(name).baseline_path("sparse")) for name in ("Ant", "Humanoid")]
# rewards without components
ONE_TERM = ("000_height", "001_cosine", "002_sparse", "004_only_penalties", "005_only_penalties", "sparse")
ALL = [(name, path) for name, paths in FILES.items() for path in paths]


def cases(files):
    """One file of each task is tried by the fast tests."""
    first = {name: path for name, path in reversed(files)}
    return [
        pytest.param(name, path, id=f"{name}-{path.stem}", marks=() if path is first[name] else pytest.mark.slow)
        for name, path in files
    ]


def anymal(stem: str) -> Functions:
    return candidate("Anymal", stem)


def on_the_move(name: str, n: int = 5):
    """A fake task in a state with nothing at rest."""
    task = fake(name, n)
    torch.manual_seed(0)
    begin(task, baseline(name, "human"))
    task.state["dof_vel"].normal_()
    if name == "Anymal":
        task.state["root_states"][:, 3:7] = torch.nn.functional.normalize(torch.randn(n, 4), dim=1)
        task.state["root_states"][:, 7:].normal_()
        task.state["torques"].normal_(std=20.0)
        task.state["contact_forces"].normal_(std=50.0)
    return task


def test_baseline_is_one_file_with_the_functions_that_it_imports():
    for name, path in BASELINES:
        text = inlined(path.read_text())
        whole = load_candidate(path.stem, text, f"{name} {path.name}").functions
        assert "from envcoder_bench.tasks" not in text
        assert {kind: inspect.getsource(one.call) for kind, one in whole.items()} == {
            kind: inspect.getsource(one.call) for kind, one in Functions(path).candidate.functions.items()
        }


CARTPOLE = "from envcoder_bench.tasks.cartpole.human import "
AGAIN = "compute_reward\nhuman = compute_reward\n\ndef compute_reward(pole_angle):\n    return human(pole_angle)\n"


@pytest.mark.parametrize("rest", ["*\n", "compute_reward as base\n", "compute_reward, nothing\n", AGAIN])
def test_imports_of_a_baseline_with_other_names_stay(rest):
    assert inlined(CARTPOLE + rest) == CARTPOLE + rest
    assert "def compute_torque" in inlined(CARTPOLE + "compute_torque\n")


@pytest.mark.parametrize(
    ("name", "path", "filler"),
    [pytest.param(*case.values, "human", id=f"{case.id}-human", marks=case.marks) for case in cases(ALL + SPARSE)]
    + [pytest.param(name, paths[0], "unshaped", id=f"{name}-unshaped") for name, paths in FILES.items() if paths],
)
def test_candidate_passes_the_check_with_either_baseline(name, path, filler):
    task = on_the_move(name)
    functions = Functions(path).candidate
    shaping = check(assemble(functions, baseline(name, filler).candidate), dict(task.state), task.constants, task)
    assert shaping.obs_dim > 0
    assert all(f.random_line is None and f.stateful_line is None for f in functions.functions.values())
    if "compute_reward" in functions.functions and path.stem not in ONE_TERM:
        assert shaping.components, "a curve for each part of the reward"


class WaitsForDevice(TorchDispatchMode):
    """Fails at an operator that a CUDA graph cannot hold: new data from Python, or a decision on a tensor's values.

    Values of the constants may be read: they are on the CPU.
    """

    def __init__(self, constants=None) -> None:
        super().__init__()
        self.on_cpu = {x.data_ptr() for x in (constants or {}).values()}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        reads_constant = name == "_local_scalar_dense" and args[0].data_ptr() in self.on_cpu
        masks = name == "index" and any(x is not None and x.dtype == torch.bool for x in args[1])
        waits = masks or name in ("lift_fresh", "_local_scalar_dense", "nonzero")
        assert reads_constant or not waits, f"{func} waits for the device"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("name", "path"), cases(ALL + BASELINES))
def test_candidate_does_not_synchronize_with_the_device(name, path):
    task, functions = on_the_move(name), Functions(path)
    state = whole_state(task, functions.candidate.action_dim or 0)
    for shaper_type in functions.candidate.functions:
        step = torch.zeros((), dtype=torch.int64)
        constants = {key: state[key] for key in task.constants}
        with WaitsForDevice(constants), stream.use(0, step, 0):  # as in a graph, whose step is a tensor
            functions(shaper_type, state, state["actions"])


def test_synchronization_detector_detects():
    for waiting in (lambda x: torch.tensor([1.0]) * x, lambda x: x[x > 0], lambda x: x if x.sum() > 0 else -x):
        with pytest.raises(AssertionError, match="waits for the device"), WaitsForDevice():
            waiting(torch.ones(3))


@pytest.mark.parametrize("stem", ["000_smooth", "001_trot_clock", "004_tilt_ends", "007_bound_names"])
def test_anymal_rewards_prefer_tracking_to_standing(stem):
    task = fake("Anymal", 2)
    task.state["root_states"][:] = torch.tensor([0, 0, 0.5, 0, 0, 0, 1.0, 0, 0, 0, 0, 0, 0])
    task.state["root_states"][0, 7] = 1.0
    task.state["dof_pos"][:] = task.state["default_dof_pos"]
    task.state["commands"][:, 0] = 1.0
    reward, _ = anymal(stem)("compute_reward", whole_state(task))
    assert reward[0] > 2 * reward[1] > 0


def test_trot_clock_alternates_the_diagonal_pairs():
    task = fake("Anymal", 2)
    task.state["contact_forces"][:, [3, 12], 2] = 250.0  # LF and RH stand
    state = dict(whole_state(task))
    state["progress_buf"] = torch.tensor([5, 18])  # 0.1 s and 0.36 s at 2 Hz: first and second half of the period
    _, components = anymal("001_trot_clock")("compute_reward", type(whole_state(task))(state))
    assert components["gait"].tolist() == pytest.approx([0.3 * 0.02, 0.0])
    obs = anymal("001_trot_clock")("compute_observation", type(whole_state(task))(state))
    angle = 2 * math.pi * 2.0 * 0.1
    assert obs.shape == (2, 50) and obs[0, -2:].tolist() == pytest.approx([math.sin(angle), math.cos(angle)], abs=1e-5)


def test_no_velocity_observation_ignores_linear_velocity():
    task = on_the_move("Anymal", 3)
    functions = anymal("002_no_velocity")
    before = functions("compute_observation", whole_state(task)).clone()
    task.state["root_states"][:, 7:10] += 1.0
    assert before.shape == (3, 45) and torch.equal(functions("compute_observation", whole_state(task)), before)
    task.state["root_states"][:, 3:7] = torch.tensor([math.sqrt(0.5), 0.0, 0.0, math.sqrt(0.5)])
    gravity = functions("compute_observation", whole_state(task))[0, 3:6]
    assert gravity.tolist() == pytest.approx([0.0, -1.0, 0.0], abs=1e-6)  # rolled right: gravity is to the right


def test_tilt_ends_depends_only_on_posture():
    task = fake("Anymal", 4)
    root = task.state["root_states"]
    root[:, 2] = 0.5
    for row, degrees in ((1, 50.0), (2, 70.0)):
        half = math.radians(degrees) / 2
        root[row, 3:7] = torch.tensor([math.sin(half), 0.0, 0.0, math.cos(half)])
    root[3, 2] = 0.25
    task.state["contact_forces"].fill_(100.0)
    assert anymal("004_tilt_ends")("compute_terminal", whole_state(task)).tolist() == [False, False, True, True]


def test_easy_episodes_are_half_of_the_episodes():
    task = fake("Anymal", 2000)
    torch.manual_seed(0)
    begin(task, anymal("005_easy_episodes"))
    commands, default = task.state["commands"], task.state["default_dof_pos"]
    easy = (commands[:, 1:] == 0.0).all(dim=1)
    assert 0.45 < easy.float().mean().item() < 0.55
    assert commands[easy, 0].min() >= 0.0 and commands[easy, 0].max() <= 1.0 and commands[~easy, 0].min() < -1.8
    assert 0.45 < (task.state["dof_pos"] == default).all(dim=1).float().mean().item() < 0.55


def test_diagonal_pairs_share_one_action():
    task = fake("Anymal", 4)
    task.state["default_dof_pos"].zero_()
    action = torch.zeros(4, 8)
    action[torch.arange(4), torch.arange(4)] = 1.0  # left, turn, forward, lift of the first pair
    target = anymal("006_diagonal_pairs")("compute_dof_target", whole_state(task, 8), action).view(4, 4, 3)
    lf, lh, rf, rh = target.unbind(1)
    assert bool((lh == 0).all()) and bool((rf == 0).all())
    torch.testing.assert_close(lf, torch.tensor([[0.3, 0, 0], [0.3, 0, 0], [0, -0.5, 0], [0, 0.4, -0.8]]))
    torch.testing.assert_close(rh, torch.tensor([[0.3, 0, 0], [-0.3, 0, 0], [0, -0.5, 0], [0, -0.4, 0.8]]))


def test_bound_names_run_as_a_script_with_python_numbers():
    functions = anymal("007_bound_names")
    call = functions.candidate.functions["compute_reward"]
    assert isinstance(call.call, torch.jit.ScriptFunction)
    assert [p.annotation for p in call.parameters if p.name == "dt"] == [float]
    task = on_the_move("Anymal")
    reward, components = functions("compute_reward", whole_state(task))
    assert reward.shape == (5,) and set(components) == {"lin_vel", "ang_vel", "stance", "torque"}


@pytest.mark.parametrize("stem", ["003_torque", "006_diagonal_pairs"])
def test_zero_action_keeps_the_robot_standing(stem):
    """An action space is suitable for learning only if its zero action keeps the robot standing."""
    task = find_spec("Anymal").make(shipped("Anymal"), 8, "mujoco_cpu", "cpu")
    functions = anymal(stem)
    kind = "compute_torque" if stem == "003_torque" else "compute_dof_target"
    width = functions.candidate.action_dim or 0
    task.set_drive_mode(torch.full((8,), kind == "compute_torque"))
    torch.manual_seed(0)
    begin(task, baseline("Anymal", "unshaped"))
    human = baseline("Anymal", "human")
    for _ in range(100):
        state = whole_state(task, width)
        task.step(functions(kind, state, torch.zeros(8, width)))
        assert not bool(human("compute_terminal", state).any())
    assert bool((task.state["root_states"][:, 2] > 0.44).all())


# Cartpole


def upright_and_fallen():
    task = fake("Cartpole", 2)
    task.state["pole_angle"][1] = 1.2
    return whole_state(task)


@pytest.mark.parametrize("stem", ["000_upright_bonus", "001_cosine"])
def test_good_cartpole_rewards_prefer_upright(stem):
    reward = candidate("Cartpole", stem)("compute_reward", upright_and_fallen())
    reward = reward[0] if isinstance(reward, tuple) else reward
    assert reward[0].item() == pytest.approx(1.0) and reward[1] < 0.6


def test_only_penalties_reward_is_always_negative():
    reward = candidate("Cartpole", "004_only_penalties")("compute_reward", upright_and_fallen())
    assert bool((reward < 0).all())


def test_sine_cosine_observation_ignores_full_turns():
    task = fake("Cartpole", 2)
    task.state["pole_angle"][:] = torch.tensor([0.3, 0.3 + 2 * math.pi])
    obs = candidate("Cartpole", "002_sine_cosine")("compute_observation", whole_state(task))
    assert obs.shape == (2, 5)
    torch.testing.assert_close(obs[0], obs[1], atol=1e-5, rtol=0)


def test_gentle_torque_is_a_tenth_of_the_maximum():
    action = torch.tensor([[1.0], [-0.5]])
    torque = candidate("Cartpole", "003_gentle")("compute_torque", whole_state(fake("Cartpole", 2)), action)
    assert torque.tolist() == [[pytest.approx(40.0), 0.0], [pytest.approx(-20.0), 0.0]]


def test_wide_start_range_exceeds_the_baseline_without_terminating():
    task = fake("Cartpole", 2000)
    torch.manual_seed(0)
    begin(task, candidate("Cartpole", "005_wide_start"))
    assert task.state["pole_angle"].abs().max() > 0.45 and task.state["cart_pos"].abs().max() > 0.9
    assert not bool(baseline("Cartpole", "human")("compute_terminal", whole_state(task)).any())
