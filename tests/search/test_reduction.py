"""Models' files without the functions that a search does not ask for."""

import ast
from pathlib import Path

import pytest

from envcoder_bench.search.genome import Genome
from envcoder_bench.search.reduction import reduced
from envcoder_bench.shaping.definitions import defined_types
from envcoder_bench.shaping.kinds import ALIASES

ROOT = Path(__file__).parents[2]
REWARD = ("compute_reward",)
WHOLE = '''"""Swing: compute_observation is blind."""

from __future__ import annotations

import math
from typing import (
    Dict,
)

import torch

ACTION_DIM = 1
SCALE: float = 2.0
BLIND = 0.0
LIMITS = {
    "low": -1.0,
}
TEXT = """
def compute_goal(state_dict):
"""


@torch.jit.script
def _upright(x):
    # the cosine
    return SCALE * torch.cos(x)


def _zeros(x):
    return BLIND * x


# what the policy sees
@torch.compile(
    dynamic=True,
)
def compute_observation(state_dict):
    return _zeros(state_dict["dof_pos"])


def compute_reward(state_dict):
    """A reward."""
    name = f"{LIMITS['low']}"
    return _upright(state_dict["pole_angle"]) + math.pi + len(name)


def compute_torque(action, state_dict):
    return 0.001 * action + TEXT
compute_done = lambda state_dict: state_dict["progress_buf"] > 5
'''


def bound(source):
    tree = ast.parse(source)
    return [getattr(s, "name", None) or ast.unparse(getattr(s, "target", None) or s.targets[0]) for s in tree.body
            if isinstance(s, (ast.FunctionDef, ast.Assign, ast.AnnAssign))]  # fmt: skip


def test_file_is_reduced_to_the_functions_of_the_search_and_what_they_use():
    source, left_out = reduced(WHOLE, REWARD)
    assert left_out == ("compute_observation", "compute_torque", "compute_done")
    assert bound(source) == ["SCALE", "LIMITS", "_upright", "compute_reward"]
    assert source.startswith('"""Swing: compute_observation is blind."""\n\nfrom __future__ import annotations\n\n')
    assert "import math\n\nimport torch\n\nSCALE: float = 2.0\nLIMITS" in source
    assert "\n}\n\n\n@torch" in source and "cos(x)\n\n\ndef compute_reward" in source
    assert "what the policy sees" not in source and "dynamic" not in source and "Dict" not in source
    kept = WHOLE[WHOLE.index("@torch.jit.script") : WHOLE.index("\n\n\ndef _zeros")]
    assert kept in source
    assert WHOLE[WHOLE.index("def compute_reward") : WHOLE.index("\n\n\ndef compute_torque")] in source


@pytest.mark.parametrize(
    "types", [None, ("compute_reward", "compute_observation", "compute_torque", "compute_terminal")]
)
def test_file_without_other_functions_is_unchanged(types):
    assert reduced(WHOLE, types) == (WHOLE, ())


def test_action_functions_keep_their_dimension():
    source, left_out = reduced(WHOLE, ("compute_torque",))
    assert bound(source) == ["ACTION_DIM", "TEXT", "compute_torque"] and left_out[0] == "compute_reward"


def test_function_that_is_used_is_kept_under_another_name():
    source = (
        "import torch\n\n\ndef compute_observation(s):\n    return s['dof_pos']  # compute_observation"
        "\n\n\ndef compute_reward(state_dict):\n    return compute_observation(state_dict).sum(dim=-1)\n"
    )
    text, left_out = reduced(source, REWARD)
    assert left_out == ("compute_observation",)
    assert bound(text) == ["_compute_observation", "compute_reward"]
    assert "return _compute_observation(state_dict).sum" in text and "import torch" not in text


@pytest.mark.parametrize(
    "top",
    [
        "if True:\n    def compute_observation(s):\n        return s['dof_pos']\n",
        "compute_observation = compute_goal = lambda s: s['dof_pos']\n",
        "A = 1; compute_observation = print\n",
        "class Nothing:\n    pass\n\nNothing.x = compute_observation\n",
    ],
)
def test_no_other_function_is_left_whatever_defines_it(top):
    text, left_out = reduced(f"{top}\ndef compute_reward(s):\n    return s['x']\n", REWARD)
    namespace = {"_compute_observation": print}
    exec(compile(text, "x", "exec"), namespace)
    assert "compute_observation" in left_out and "compute_reward" in namespace
    assert not {"compute_observation", "compute_goal"} & set(namespace)


IMPORTED = "envcoder_bench.tasks.ant.human"


@pytest.mark.parametrize(
    "imports, call, kept",
    [
        (f"from {IMPORTED} import compute_reward, compute_observation", "1.0", "compute_reward"),
        (f"from {IMPORTED} import (\n    compute_observation,\n    projections,\n)", "projections(s)", "projections"),
        (f"from {IMPORTED} import compute_observation", "compute_observation(s)",
         "compute_observation as _compute_observation"),
        (f"from {IMPORTED} import compute_observation as seen", "seen(s)", "compute_observation as seen"),
        (f"from {IMPORTED} import projections as compute_observation", "compute_observation(s)",
         "projections as _compute_observation"),
    ],
)  # fmt: skip
def test_imported_functions_are_left_out_or_get_another_name(imports, call, kept):
    text, left_out = reduced(f"{imports}\n\n\ndef compute_reward(s):\n    return {call}\n", REWARD)
    assert f"from {IMPORTED} import {kept}\n" in text and "compute_observation" in left_out
    namespace = {}
    exec(compile(text, "x", "exec"), namespace)
    assert not {"compute_observation"} & set(namespace)


def test_import_of_left_out_functions_alone_is_left_out():
    text, _ = reduced(f"from {IMPORTED} import compute_observation\n\ndef compute_reward(s):\n    return 1.0\n", REWARD)
    assert text == "def compute_reward(s):\n    return 1.0\n"


@pytest.mark.parametrize(
    "top",
    [
        "try: K = 1\nexcept ValueError: K = 2.0\n",
        "if True: K = 1\nelif False: K = 3\nelse: K = 2\n",
        "try:\n    K = 1\nfinally:\n    pass\n",
        "for K in (0, 1):\n    pass\nelse:\n    pass\n",
    ],
)
def test_blocks_of_several_parts_stay_whole(top):
    text, _ = reduced(f"{top}\ndef compute_goal(s):\n    return 0\n\ndef compute_reward(s):\n    return K\n", REWARD)
    namespace = {}
    exec(compile(text, "x", "exec"), namespace)
    assert namespace["compute_reward"](0) == 1 and top in text


def test_last_line_of_a_string_is_no_comment_of_the_next_function():
    top = '"""Doc.\n# notes"""\n'
    rest = "def compute_reward(s):\n    return 1\n"
    assert reduced(f"{top}def compute_goal(s):\n    return 0\n\n\n{rest}", REWARD)[0] == f"{top}\n\n{rest}"


def test_file_without_any_function_of_the_search_is_empty():
    assert reduced("def compute_goal(s):\n    return {}\n", REWARD) == ("", ("compute_goal",))


@pytest.mark.parametrize(
    "part",
    [
        "compute_goal = (\n",
        "# x\n",
        "'''\n",
        "def compute_goal():\n  pass\n",
        "a = 1 if a else b\n",
        "\\",
        "a = compute_goal\n",
    ],
)
def test_long_files_are_reduced(part):
    """Of a length at which quadratic time would not end soon."""
    text = f"def compute_reward(s):\n    return a\n{part * (400_000 // len(part))}compute_goal"
    assert reduced(text, REWARD)[1] == ("compute_goal",)


SHIPPED = sorted([*ROOT.glob("user_functions/*/*.py"), *ROOT.glob("envcoder_bench/tasks/*/human.py")])


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}_{path.stem}")
def test_shipped_files_are_reduced_as_by_their_syntax_trees(path):
    text = path.read_text()
    present = defined_types(text)
    for name in present if len(present) > 1 else ():
        name = ALIASES.get(name, name)
        source, left_out = reduced(text, [name])
        genome = Genome(text, [name])
        names = [found.lstrip("_") for found in Genome(source, [name], prune=False).definitions]
        names = [ALIASES.get(found, found) for found in names]
        expected = {found.lstrip("_") for found in genome.definitions}
        assert {*names} - {"annotations"} == expected - {"annotations"}, name
        assert len(left_out) >= len(present) - 1
