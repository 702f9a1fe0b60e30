"""The differences between two candidates are of the functions that a file defines, and of what they use."""

import re

import pytest

from envcoder_bench.report.page import shell
from envcoder_bench.report.page.shell import changes

HUMAN = '''"""Human."""

import torch

SCALE = 0.3
LIMIT = 1.0


def helper(x):
    return SCALE * x


def compute_reward(pole_angle):
    """Upright."""
    return 1.0 - helper(pole_angle)


def compute_terminal(pole_angle):
    return pole_angle > LIMIT
'''


def changed(before, after):
    """Return the changed lines as text, without empty ones."""
    page = changes(before, after)
    assert page is not None
    lines = [re.sub("<[^>]*>", "", line) for line in re.findall(r'<span class="g[id]">.*', page)]
    return [line for line in lines if len(line) > 1]


def test_only_functions_that_the_file_defines_are_compared():
    child = HUMAN[: HUMAN.index("\n\ndef compute_terminal")].replace("1.0 - ", "2.0 - ").replace('"""Human."""', "")
    assert changed(HUMAN, child) == ["-    return 1.0 - helper(pole_angle)", "+    return 2.0 - helper(pole_angle)"]


def test_what_a_function_uses_is_compared_with_it():
    inlined = "def compute_reward(pole_angle):\n    return 1.0 - 0.5 * pole_angle\n"
    lines = changed(HUMAN, inlined)
    assert "-SCALE = 0.3" in lines and "-def helper(x):" in lines and "-LIMIT = 1.0" not in lines
    assert "+SCALE = 0.4" in changed(HUMAN, HUMAN.replace("SCALE = 0.3", "SCALE = 0.4"))


def test_new_functions_are_added_and_aliases_are_the_same_function():
    lines = changed(HUMAN, HUMAN + "\n\ndef compute_goal(a):\n    return {}\n")
    assert lines[-2:] == ["+def compute_goal(a):", "+    return {}"]
    renamed = "LIMIT = 1.0\n\n\ndef compute_done(pole_angle):\n    return pole_angle > LIMIT\n"
    assert changed(HUMAN, renamed) == ["-def compute_terminal(pole_angle):", "+def compute_done(pole_angle):"]


def test_a_function_that_an_import_replaces_is_shown():
    child = "from tasks.unshaped import (\n    compute_terminal,\n)\n\n\ndef compute_reward(a):\n    return a\n"
    lines = changed(HUMAN, child)
    assert "-def compute_terminal(pole_angle):" in lines and "+from tasks.unshaped import (" in lines


def test_decorators_and_comments_belong_to_the_function_below():
    child = HUMAN.replace("def compute_reward", "# why\n@torch.jit.script\ndef compute_reward")
    assert changed(HUMAN, child) == ["+# why", "+@torch.jit.script"]  # imports are not compared


def test_files_without_a_common_function_are_not_compared():
    assert changes(HUMAN, "def compute_torque(action):\n    return action\n") is None
    assert changes("def f(", "def g(") is None and changes(HUMAN, "") is None
    assert "There are none." in str(changes(HUMAN, HUMAN.replace('"""Human."""', '"""Other."""')))


def test_long_sources_are_not_compared(monkeypatch):
    monkeypatch.setattr(shell, "MOST_COMPARED", 5)
    assert "They are not compared: one has 5 lines or more." in str(changes(HUMAN, HUMAN))


@pytest.mark.parametrize("unit", ["(", "a.", '"', "'''", "def f(", "@a\n", "#", "x = 1\n", "import "])
def test_hostile_text_is_compared_in_linear_time(unit):
    text = f"def compute_reward(a):\n    return a\n{(unit * 40_000)[:4000]}"
    changes(text, text.replace("return a", "return b"))
