"""Every signature variant of the contract, and every invalid return, with the exact message."""

import sys
import warnings

import pytest
import torch
from shaping_fakes import BASELINE, FakeTask, load, shaping

from envcoder_bench.shaping.checking import TrialState, check
from envcoder_bench.shaping.contract import CandidateError, assemble
from envcoder_bench.shaping.state import StateDict, bind, own_constants


def fault(code, **kwargs):
    with pytest.raises(CandidateError) as caught:
        shaping(code, **kwargs)
    return str(caught.value)


# what is allowed


@pytest.mark.parametrize(
    "signature",
    [
        "state_dict",
        "state",
        "dof_pos",
        "dof_pos, actions",
        "action, dof_pos",
        "dof_pos, weight=2.0",
        "weight=2.0, dof_pos=None",
        "dof_pos, /, dof_vel",
        "*, dof_pos, weight=1.0",
        "dof_pos, *args, **kwargs",
        "state_dict: Dict[str, Tensor], progress_buf, dof_vel_scale, feet_indices",
    ],
)
def test_parameters_are_bound_by_name(signature):
    own = next(name for name in ("dof_pos", "state_dict", "state") if name in signature)
    x = own if own == "dof_pos" else f"{own}['dof_pos']"
    checked = shaping(f"def compute_reward({signature}):\n    return {x}.sum(dim=-1)\n")
    assert checked.functions["reward"].line == 1


NETWORK = """
class Network(torch.nn.Module):
    def forward(self, dof_pos, dof_vel_scale: float, weight: float = 2.0):
        return dof_pos[:, 0] * dof_vel_scale * weight
"""
CALLED = """
class Network(torch.nn.Module):
    def __call__(self, state_dict):
        return state_dict["dof_pos"][:, 0] * 0.1
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "code",
    [
        f"{NETWORK}compute_reward = Network()",
        f"{NETWORK}compute_reward = torch.jit.script(Network())",
        f"{NETWORK}compute_reward = torch.jit.script(Network()).forward",
        f"{CALLED}compute_reward = Network()",
        "def f(dof_pos):\n    return dof_pos[:, 0] * 0.1\ncompute_reward = torch.jit.trace(f, torch.zeros(2, 3))",
        "class Network(torch.nn.Module):\n    def forward(self, dof_pos):\n        return dof_pos[:, 0] * 0.1\n"
        "compute_reward = torch.jit.trace(Network(), torch.zeros(2, 3))",
    ],
)
def test_modules_and_scripts_are_functions(code):
    task = FakeTask(4)
    given = StateDict({**task.state, **task.constants, "actions": torch.zeros(4, 3)})
    reward = bind(shaping(code, task=task).functions["reward"], given)()
    torch.testing.assert_close(reward, 0.1 * task.state["dof_pos"][:, 0])


@pytest.mark.parametrize("signature", ["*args", "**kwargs", "*args, **kwargs"])
def test_wrapper_without_named_parameters_is_explained(signature):
    inside = "def compute_reward(dof_pos):\n    return dof_pos[:, 0]\n"
    code = f"""
import functools
def twice(f):
    def wrapped({signature}):
        return 2 * f({signature})
    return wrapped
@twice
{inside}"""
    told = fault(code)
    assert told.startswith("mine.py:5: in compute_reward: raised TypeError: ") and "functools.wraps" in told
    if signature == "*args, **kwargs":
        shaping(code.replace("    def wrapped", "    @functools.wraps(f)\n    def wrapped"))


def test_parameters_receive_state_actions_and_constants():
    shaping(
        """
        def compute_reward(
            state_dict, state, action, actions, dof_pos, progress_buf, dof_vel_scale, weight=2.0, *args, **others
        ):
            assert state is state_dict and action is actions and actions is state_dict["actions"]
            assert dof_pos is state_dict["dof_pos"] and weight == 2.0 and args == ()
            assert set(others) == {"root_states", "dof_vel", "commands", "contact_forces", "feet_indices"}
            assert progress_buf.dtype is torch.int64 and progress_buf.shape == (4,)
            assert dof_vel_scale.item() == pytest_approx and dof_vel_scale.device.type == "cpu"
            return dof_pos[:, 0]
        pytest_approx = torch.tensor(0.05).item()
        """
    )


def test_torchscript_parameters_are_bound():
    checked = shaping(
        """
        @torch.jit.script
        def compute_reward(
            state_dict: Dict[str, Tensor], dof_pos: Tensor, dof_vel_scale: float
        ) -> Tuple[Tensor, Dict[str, Tensor]]:
            r = state_dict["dof_vel"].sum(dim=-1) * dof_vel_scale + dof_pos[:, 0]
            return r, {"all": r}

        @torch.jit.script
        def compute_torque(actions: Tensor, dof_pos: Tensor) -> Tensor:
            return actions - dof_pos
        """
    )
    assert checked.components == ("all",) and checked.action_dim == 3 and checked.effort


def test_dimensions_and_components_are_inferred():
    checked = shaping(
        """
        def compute_reward(dof_pos):
            r = dof_pos.sum(dim=-1)
            return r.double(), {"pos": r, "upright": r > 0, "steps": torch.ones(4, dtype=torch.int64)}
        def compute_observation(dof_pos, dof_vel):
            return torch.cat((dof_pos, dof_vel[:, :1]), dim=-1).double()
        """
    )
    assert checked.components == ("pos", "upright", "steps")
    assert (checked.obs_dim, checked.action_dim, checked.effort) == (4, 3, False)


@pytest.mark.parametrize(
    "name, message",
    [("", "the name '': give it"), (" ", "the name ' ': give it"), ("total reward", "'total reward', the reward")],
)
def test_component_names_can_be_told_apart_in_the_results(name, message):
    code = f"def compute_reward(dof_pos):\n    r = dof_pos.sum(dim=-1)\n    return r, {{{name!r}: r}}\n"
    assert message in fault(code)
    assert shaping(code.replace(repr(name), "'total'")).components == ("total",)


@pytest.mark.parametrize("value", ["x > 0", "(x > 0).long()", "(x > 0).float()", "(x > 0).double()"])
def test_terminal_may_be_bool_int_or_float(value):
    shaping(f"def compute_terminal(dof_pos):\n    x = dof_pos[:, 0]\n    return {value}\n")


def test_action_dim_is_declared_or_the_widest_that_works():
    torque = "def compute_torque(action, dof_pos):\n    return action[:, :1] - dof_pos\n"
    assert shaping("ACTION_DIM = 5\n" + torque).action_dim == 5
    with pytest.warns(
        RuntimeWarning, match=r"mine\.py:1: compute_torque takes actions of any width.*set ACTION_DIM = 3"
    ):
        assert shaping(torque).action_dim == 100
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (
            shaping("def compute_dof_target(action):\n    return action.view(-1, 3, 2).sum(dim=-1)\n").action_dim == 6
        )
        assert shaping("def compute_dof_target(action):\n    return action\n").action_dim == 3
        # ones broadcasts to any width, so the widest that fits is what the matrix says
        assert shaping("W = torch.ones(7, 3)\ndef compute_torque(action):\n    return action @ W\n").action_dim == 7


def test_effort_follows_the_action_function_or_default_drives():
    assert shaping("ACTION_DIM = 3\ndef compute_torque(action): return action\n").effort
    assert not shaping("ACTION_DIM = 3\ndef compute_dof_target(action): return action\n").effort
    assert fault("def compute_reward(dof_pos): return dof_pos[:, 0]\n", task=FakeTask(4, default_action_dim=None)) == (
        "mine.py: Fake has no position drives of its own; define compute_torque or compute_dof_target"
    )


def test_state_supports_mapping_methods_and_copies():
    shaping(
        """
        def compute_reward(state_dict):
            assert "dof_pos" in state_dict and state_dict.get("nothing") is None and len(state_dict) == 9
            state = dict(state_dict)
            state["dof_pos"] = state["dof_pos"] + 1
            other = state_dict.copy()
            other.update(dof_pos=0)
            return {**state_dict}["dof_pos"].sum(dim=-1)
        """
    )


def test_check_changes_neither_state_nor_generators():
    task = FakeTask(4)
    before = {key: x.clone() for key, x in task.state.items()}
    torch.manual_seed(3)
    generator = torch.get_rng_state()
    shaping(
        "def compute_goal(commands):\n    torch.manual_seed(1)\n    return {'commands': torch.rand(4, 3)}\n", task=task
    )
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(torch.equal(task.state[key], before[key]) for key in before)


# what is not


# function, what it returns, where x is dof_pos, and what is said of it
INVALID = [
    ("compute_reward", "1.0", "returned a float; it must be a tensor of shape (4,)"),
    ("compute_reward", "None", "returned None (is a return missing?); it must be a tensor of shape (4,)"),
    ("compute_reward", "x[:, :1]", "returned shape (4, 1); it must be (4,); write x[:, 0] in place of x[:, :1]"),
    ("compute_reward", "x[:, 0][None]", "returned shape (1, 4); it must be (4,): squeeze it with .squeeze(0)"),
    ("compute_reward", "x", "returned shape (4, 3); it must be (4,): reduce the last axis, e.g. with .sum(dim=-1)"),
    (
        "compute_reward",
        "x.sum()",
        "returned shape (); it must be (4,): one number per environment, so reduce with dim=-1",
    ),
    ("compute_reward", "x[:2, 0]", "returned shape (2,); it must be (4,): the first axis is the 4 environments"),
    ("compute_reward", "x[:, 0] > 0", "returned torch.bool; it must be floating point: add .float()"),
    ("compute_reward", "x[:, 0] / 0 * 0", "returned NaN or infinity in 4 of 4 values"),
    (
        "compute_reward",
        "(x[:, 0], x[:, 1])",
        "returned (a tensor (4,), a tensor (4,)); return the reward (4,), or the pair (reward, {name: component})",
    ),
    (
        "compute_reward",
        "(x, {})",
        "returned the reward as shape (4, 3); it must be (4,): reduce the last axis, e.g. with .sum(dim=-1)",
    ),
    (
        "compute_reward",
        "(x[:, 0], {'a': 'b'})",
        "returned component 'a' as a str; it must be a tensor of shape (4,)",
    ),
    (
        "compute_reward",
        "(x[:, 0], {'a': x[:, :1]})",
        "returned component 'a' as shape (4, 1); it must be (4,); write x[:, 0] in place of x[:, :1]",
    ),
    *(
        (
            "compute_observation",
            value,
            f"returned {what}; the observation is a tensor (4, k), any k: join parts with torch.cat(parts, dim=-1), "
            "those of one number each after x.unsqueeze(-1)",
        )
        for value, what in (("x[:, 0]", "shape (4,)"), ("[x]", "a list"), ("x[:, :0]", "shape (4, 0)"))
    ),
    ("compute_observation", "x[:2]", "returned shape (2, 3); it must be (4, 3): the first axis is the 4 environments"),
    ("compute_torque", "action", "returned shape (4, 2); it must be (4, 3)"),
    (
        "compute_dof_target",
        "action[0].new_zeros(3)",
        "returned shape (3,); it must be (4, 3): one row per environment, so expand it with .expand(4, 3)",
    ),
    ("compute_initial_state", "x", "returned a tensor (4, 3); return a dict of some of root_states, dof_pos, dof_vel"),
    (
        "compute_initial_state",
        "{}",
        "returned an empty dict; return some of root_states, dof_pos, dof_vel, or remove the function",
    ),
    (
        "compute_initial_state",
        "{'dof_poss': x}",
        "returned the key 'dof_poss' (did you mean dof_pos?); return some of root_states, dof_pos, dof_vel",
    ),
    ("compute_initial_state", "{'root_states': x}", "returned 'root_states' as shape (4, 3); it must be (4, 13)"),
    ("compute_initial_state", "{'dof_pos': x / 0}", "returned 'dof_pos' with NaN or infinity in 12 of 12 values"),
    ("compute_goal", "{'dof_pos': x}", "returned the key 'dof_pos'; return some of commands"),
    (
        "compute_initial_state",
        "{'dof_pos': x.int()}",
        "returned 'dof_pos' as torch.int32; it must be floating point: add .float()",
    ),
    ("compute_terminal", "x[:, 0] * 1j", "returned torch.complex64; it must be floating point: add .float()"),
    ("compute_terminal", "False", "returned a bool; it must be a tensor of shape (4,)"),
]


@pytest.mark.parametrize(("name", "returned", "message"), INVALID)
def test_invalid_results_are_refused(name, returned, message):
    acts = name in ("compute_torque", "compute_dof_target")
    head = "ACTION_DIM = 2\n" * acts + f"def {name}({'action, ' * acts}dof_pos):\n    x = dof_pos\n"
    told = fault(f"{head}    return {returned}\n").partition("; division of ")[0]  # of NaN: see below
    assert told == f"mine.py:{3 + acts}: in {name}: {message}"


@pytest.mark.parametrize(
    ("returned", "remedy"),
    [
        ("x[:, 0] + x[:, 1:2]", "an (n,) and an (n, 1) were broadcast to (n, n): write x[:, 1] in place of x[:, 1:2]"),
        ("x[:, 0] * x.sum(dim=-1, keepdim=True)", "were broadcast to (n, n): leave out keepdim=True"),
        ("x[:, 0] * x[:, 1].unsqueeze(-1)", "were broadcast to (n, n): leave out .unsqueeze(-1)"),
        # as many columns as environments by chance: the advice must be right for both
        ("torch.cat((x, x[:, [1]]), dim=1)", "reduce the last axis, e.g. with .sum(dim=-1), unless an (n,) and an"),
    ],
)
def test_result_with_too_many_columns_is_explained_by_the_text(returned, remedy):
    told = fault(f"def compute_reward(dof_pos):\n    x = dof_pos\n    return {returned}\n")
    assert "returned shape (4, 4); it must be (4,); " in told and remedy in told


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (
            "    y = dof_pos[:, 0] - 99\n    return torch.sqrt(y)",
            "; sqrt of -99.5 in line 3 is nan where dof_pos is -0.5 -0.13 0.24",
        ),
        ("    return 1 / (0 * dof_pos[:, 0])", "; division of -0 in line 2 is -inf"),
        (
            "    y = 0 * dof_pos[:, 0]\n    return torch.log(y) * progress_buf",
            "; log of -0 in line 3 is -inf where dof_pos is",
        ),
    ],
)
def test_number_that_is_not_finite_has_its_operation_line_and_state(code, remedy):
    told = fault(f"def compute_reward(dof_pos, progress_buf):\n{code}\n")
    assert "returned NaN or infinity in 4 of 4 values; " in told and remedy in told
    assert told.endswith(": guard it, as with torch.clamp")


def test_action_function_without_a_working_width_is_refused():
    code = "def compute_torque(action):\n    return action.sum(dim=-1)\n"
    assert fault(code) == (
        "mine.py:2: in compute_torque: works with no action width from 100 to 1: with actions of width 3 it returned "
        "shape (4,); it must be (4, 3)"
    )
    code = "def compute_torque(action):\n    y = action\n    raise ValueError('bad gains')\n"
    assert fault(code) == (
        "mine.py:3: in compute_torque: works with no action width from 100 to 1: with actions of width 3 it raised "
        "ValueError: bad gains"
    )


@pytest.mark.parametrize("returned", ["{}", "{'commands': commands}"])
def test_goal_function_of_a_task_without_goals_is_refused(returned):
    task = FakeTask(4)
    task.goal_keys = ()
    code = f"def compute_goal(commands):\n    return {returned}\n"
    told = "the task has nothing to set here: remove the function"
    assert fault(code, task=task) == f"mine.py:2: in compute_goal: {told}"


def test_unknown_parameters_are_refused():
    for name in ("compute_reward", "compute_torque"):
        assert fault(f"\ndef {name}(dof_poss):\n    return 1\n") == (
            f"mine.py:2: in {name}: parameter 'dof_poss' is not a key of the state (did you mean dof_pos?)"
        )


@pytest.mark.parametrize(
    "change",
    [
        "state_dict['dof_pos'] = 0",
        "del state_dict['dof_pos']",
        "state_dict.update(dof_pos=0)",
        "state_dict.pop('dof_pos')",
        "state_dict.setdefault('mine', 0)",
        "state_dict.clear()",
        "state_dict.popitem()",
        "state_dict |= {'mine': 0}",
    ],
)
def test_state_is_read_only(change):
    code = f"def compute_reward(state_dict):\n    {change}\n    return state_dict['dof_pos'].sum(dim=-1)\n"
    assert fault(code) == (
        "mine.py:2: in compute_reward: raised TypeError: state_dict is read-only: return new tensors instead of "
        "changing it, or work on a copy, dict(state_dict)"
    )


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ("dof_pos *= 2", "dof_pos"),
        ("dof_pos[:, 0] = 1.0", "dof_pos"),
        ("actions.clamp_(-1, 1)", "actions"),
        ("state_dict['dof_vel'].view(-1).add_(1)", "dof_vel"),
        ("dof_vel_scale.mul_(2)", "dof_vel_scale"),
        ("progress_buf += 1", "progress_buf"),
        ("dof_pos.numpy()[:] = 7.0", "dof_pos"),
        ("dof_pos.data.mul_(2)", "dof_pos"),
    ],
)
def test_in_place_changes_of_inputs_are_refused(change, key):
    signature = "state_dict, dof_pos, actions, dof_vel_scale, progress_buf"
    code = f"def compute_reward({signature}):\n    {change}\n    return state_dict['dof_pos'].sum(dim=-1)\n"
    assert fault(code) == (
        f"mine.py:1: in compute_reward: changed {key!r} in place (x += 1, x[...] = 1 and x.add_(1) do)"
        "; return new tensors, or work on x.clone()"
    )


def test_faults_that_cuda_hides_are_found_on_the_cpu():
    def check_on_the_cpu(change):
        code = f"def compute_reward(dof_pos):\n    {change}\n    return dof_pos.sum(dim=-1)\n"
        task = FakeTask(4)
        TrialState(task.state, task.constants, task)._check_on_the_cpu(next(iter(load(code).functions.values())))

    with pytest.raises(CandidateError, match="changed 'dof_pos' in place"):
        check_on_the_cpu("dof_pos.data.mul_(2)")
    with pytest.raises(CandidateError, match="out of bounds"):
        check_on_the_cpu("dof_pos[:, 99]")
    check_on_the_cpu("raise RuntimeError('needs CUDA')")


def test_exceptions_report_the_innermost_line_of_the_file():
    code = """
    def helper(x):
        return torch.cat((x, x[:2]), dim=-1)

    def compute_reward(dof_pos):
        return helper(dof_pos).sum(dim=-1)
    """
    assert fault(code).startswith("mine.py:3: in compute_reward: raised RuntimeError: Sizes of tensors must match")
    code = """
    @torch.jit.script
    def compute_reward(dof_pos: Tensor):
        y = dof_pos
        return (y + y[:2]).sum(dim=-1)
    """
    assert fault(code).startswith(
        "mine.py:5: in compute_reward: raised RuntimeError: The size of tensor a (4) must match"
    )
    assert fault("def compute_reward(dof_pos):\n    exit(1)\n") == "mine.py:2: in compute_reward: raised SystemExit: 1"


def test_changed_torch_settings_are_refused():
    code = "def compute_reward(dof_pos):\n    torch.set_grad_enabled({})\n    return dof_pos.sum(dim=-1)\n"
    assert fault(code.format(True)) == (
        "mine.py:1: in compute_reward: raised ValueError: changes torch's gradient mode, which all candidates share: "
        "remove that statement"
    )
    assert torch.is_grad_enabled()
    shaping(code.format(False))


def test_functions_that_set_attributes_of_shared_modules_are_refused():
    code = "def compute_reward(dof_pos):\n    vars(torch)['cos'] = torch.sin\n    return dof_pos.sum(dim=-1)\n"
    cos = torch.cos
    assert "changes torch.cos, which all candidates share: remove that statement" in fault(code)
    assert torch.cos is cos


def test_faults_of_the_baseline_report_the_baselines_file():
    task = FakeTask(4)
    bad = load("def compute_reward(dof_pos): return 1.0\n", "unshaped")
    own = load(BASELINE.replace("compute_reward", "helper"), "mine")
    with pytest.raises(CandidateError, match=r"^unshaped\.py:1: in compute_reward: returned a float"):
        check(assemble(own, bad), {key: x.clone() for key, x in task.state.items()}, task.constants, task)


def test_the_return_that_ran_is_named():
    code = (
        "def compute_reward(dof_pos, weight=1.0):\n"
        "    if weight < 0:\n"
        "        return dof_pos[:, 0]\n"
        "    if weight > 0:\n"
        "        return (\n"
        "            dof_pos * weight\n"
        "        )\n"
        "    return dof_pos[:, 1]\n"
    )
    assert ":5: in compute_reward: returned" in fault(code)
    assert ":8: in compute_reward: returned" in fault(code.replace("weight=1.0", "weight=0.0").replace("[:, 1]", ""))
    before = sys.getprofile()
    shaping(code.replace("dof_pos * weight", "dof_pos[:, 2]"))
    assert sys.getprofile() is before


@pytest.mark.parametrize(
    "value, message",
    [
        ("x.to('meta')", "returned a tensor on meta; it must be on cpu"),
        (
            "x.to_sparse()",
            "returned a tensor of the layout torch.sparse_coo; it must hold all numbers: add .to_dense()",
        ),
        ("(x, {'c': x.to('meta')})", "returned component 'c' as a tensor on meta"),
        ("(x, {'c': x.sum().to('meta')})", "returned component 'c' as shape ()"),
        ("(x, {'c': x.sum().to_sparse()})", "returned component 'c' as shape ()"),
        ("(x, {'c': x.to_sparse()})", "returned component 'c' as a tensor of the layout torch.sparse_coo"),
    ],
)
def test_tensors_without_their_numbers_are_faults_of_the_candidate(value, message):
    assert message in fault(f"def compute_reward(dof_pos):\n    x = dof_pos[:, 0]\n    return {value}\n")


def test_each_group_has_constants_of_its_own():
    constants = {"dt": torch.tensor(0.02), "feet": torch.tensor([1, 3])}
    first, second = (own_constants(constants, torch.device("cpu")) for _ in range(2))
    for key in constants:
        first[key] += 1
        assert torch.equal(second[key], constants[key]) and not torch.equal(first[key], constants[key])
    assert constants["dt"].item() == pytest.approx(0.02) and constants["feet"].tolist() == [1, 3]
