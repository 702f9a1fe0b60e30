"""The errors that one meets first name what would be right."""

import pytest
from shaping_fakes import shaping

from envcoder_bench.shaping.contract import CandidateError


def fault(code):
    with pytest.raises(CandidateError) as caught:
        shaping(code)
    return str(caught.value)


@pytest.mark.parametrize(
    ("used", "remedy"),
    [
        ("quat_rotate_inverse(dof_pos, dof_pos)", "; add from isaacgym.torch_utils import quat_rotate_inverse"),
        ("F.relu(dof_pos)", "; add import torch.nn.functional as F"),
        ("dof_poss", " (did you mean dof_pos?)"),
        ("tolerance(dof_pos, 2.0)", "; define it in this file, which must be whole"),
        ("dof_pos if dof_pos[0] > 0 else 0", "; each environment has a value of its own: write torch.where("),
        ("dof_vel", "; make it a parameter: compute_reward(..., dof_vel)"),
        ("state_dict['dof_pos']", "; make it a parameter: compute_reward(..., state_dict)"),
        ("self.gain * dof_pos", "; candidates are functions, not methods"),
        ("__import__('numpy').sum(dof_pos, axis=1)", "; use torch's functions for tensors"),
        ("torch.zeros(4, device='cuda')", "; make new tensors on the state's device: device=x.device"),
    ],
)
def test_undefined_names_and_devices_have_a_remedy(used, remedy):
    told = fault(f"def compute_reward(dof_pos):\n    return {used}\n")
    assert told.startswith("mine.py:2: in compute_reward: raised ") and remedy in told


def test_names_that_are_missing_while_the_file_is_loaded_have_a_remedy():
    assert "add import torch.nn.functional as F" in fault(
        "act = F.relu\ndef compute_reward(dof_pos):\n    return act\n"
    )
    script = "@torch.jit.script\ndef compute_reward(dof_pos):\n    return quat_conjugate(dof_pos)\n"
    assert "add from isaacgym.torch_utils import quat_conjugate" in fault(script)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("base_lin_vel", "quat_rotate_inverse(root_states[:, 3:7], root_states[:, 7:10])"),
        ("base_ang_vel", "quat_rotate_inverse(root_states[:, 3:7], root_states[:, 10:13])"),
        ("projected_gravity", "gravity_vec is (0, 0, -1)"),
        ("last_actions", "the state has no actions of the step before"),
        ("prev_actions", "the state has no actions of the step before"),
        ("obs_buf", "compute_observation"),
        ("dof_poss", "did you mean dof_pos?"),
        ("self", "instead: a plain function with the keys that it reads as parameters"),
        ("env", "instead: a plain function with the keys that it reads as parameters"),
        ("nothing", "; the keys are root_states, dof_pos,"),
    ],
)
def test_names_of_isaac_gym_say_how_to_compute_them(name, remedy):
    assert remedy in fault(f"def compute_reward({name}):\n    return {name}\n")
    told = fault(f"def compute_reward(state_dict):\n    return state_dict['{name}']\n")
    assert remedy in told and "base_index" not in told and len(told) < 300


def test_all_failing_functions_of_a_file_are_named():
    told = fault(
        "def compute_reward(dof_poss):\n    return dof_poss\n"
        "def compute_torque(action, dof_pos):\n    return pi * action\n"
        "def compute_terminal(dof_pos):\n    x = dof_pos\n    return x\n"
    )
    assert [told.count(f"mine.py:{line}: in ") for line in (1, 4, 7)] == [1, 1, 1]


def test_bad_values_have_the_line_of_the_return():
    assert fault("def compute_reward(dof_pos):\n    x = dof_pos\n    return x\n").startswith("mine.py:3: ")
    assert fault("def compute_reward(dof_pos):\n    x = 0\n    return dof_pos[:, 0] / x\n").startswith("mine.py:3: ")
    several = "def compute_reward(dof_pos):\n    if dof_pos is None:\n        return 1\n    return dof_pos\n"
    assert fault(several).startswith("mine.py:4: ")
