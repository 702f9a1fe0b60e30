"""Candidates' files by their syntax trees: reduced to some functions, edited, joined."""

import ast
from pathlib import Path

import pytest
from helpers import instructions

from envcoder_bench.jail import wire
from envcoder_bench.shaping import source as source_module
from envcoder_bench.shaping.kinds import SHAPER_TYPES
from envcoder_bench.shaping.source import Source, UnsupportedCode, inlined, reduced, shaping_source, without_script
from envcoder_bench.shaping.text import defined_kinds

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
    assert f"from {IMPORTED} import {kept}\n" in text and left_out == ("compute_observation",) * ("as seen" not in kept)
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


SHIPPED = sorted([*ROOT.glob("user_functions/*/*.py"), *ROOT.glob("envcoder_bench/tasks/*/human.py")])


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}_{path.stem}")
def test_shipped_files_are_reduced_to_each_function(path):
    text = inlined(path.read_text())
    present = defined_kinds(text)
    for name in present if len(present) > 1 else ():
        source, left_out = reduced(text, [name])
        ast.parse(source)
        assert defined_kinds(source) == {name}
        assert len(left_out) >= len(present) - 1
        if "_compute" in source:
            continue  # a function that it uses has another name
        assert shaping_source(source, [name]).fingerprint() == shaping_source(text, [name]).fingerprint()


def test_text_that_is_not_parsed_is_unchanged():
    assert source_module.MAX_CHARACTERS == wire.MAX_CHARACTERS
    for text in ("def compute_goal(:", "def compute_goal(s): pass\n" + "# x\n" * 30_000, "\x00", "\ud800"):
        assert reduced(text, REWARD) == (text, ()) and without_script(text) == text


def test_torchscript_decorators_are_removed():
    text = (
        "import torch\nfrom torch.jit import script as s\n\n\n@torch.jit.script  # fast\ndef f(x):\n    return x\n\n\n"
        "@s\n@torch.compile\ndef compute_reward(x):\n    # @torch.jit.script\n    return f(x)\n"
    )
    source = without_script(text)
    assert source == text.replace("@torch.jit.script  # fast\n", "").replace("@s\n", "")


CHAIN = "def compute_reward(a, b, c):\n    return a + 2.0 * b - 3.0 * c\n"


def whole(text):
    return shaping_source(text, SHAPER_TYPES)


@pytest.mark.parametrize("text", ["for x in y:\n    pass", "def f(:", "a.b()", "\x00"])
def test_other_top_level_statements_are_not_changed(text):
    with pytest.raises(UnsupportedCode):
        whole(text)


def test_aliases_and_torchscript_are_normalized():
    source = whole("@torch.jit.script\ndef compute_done(a):\n    return a > 1.0\n")
    assert source.text == "def compute_terminal(a):\n    return a > 1.0\n"


def test_unused_code_is_removed_and_layout_kept():
    text = (
        "import math\nimport torch\nUNUSED = 1\n\n# half\nWIDTH = (\n    0.5  # m, \u00fcber alles\n)\n\n\n"
        "def helper(x):\n    return x\n\n\n# what earns\n@torch.no_grad()\ndef compute_reward(a, b):\n"
        "    return torch.abs(\n        a / WIDTH  # near\n    )\n"
    )
    kept = text
    for unused in ("import math\n", "UNUSED = 1\n", "def helper(x):\n    return x\n\n\n"):
        kept = kept.replace(unused, "")
    assert whole(text).text == kept
    assert whole(f'"""Old."""\n\n{text}').with_docstring("It.") == f'"""It."""\n\n{kept}'


def test_docstring_may_have_any_text():
    for words in ('a "quoted" end"', 'three """ of them', "back\\slash", "x" * 300, "line\nbreak"):
        assert ast.get_docstring(ast.parse(whole(CHAIN).with_docstring(words)))


IMPORTS = "from envcoder_bench.tasks.{}.unshaped import compute_goal, compute_observation as observe, compute_done\n"
KEPT = f"{IMPORTS.format('Arm')}import torch\ncompute_observation = observe\n{CHAIN}"


def test_functions_that_are_imported_or_assigned_are_kept():
    source = whole(KEPT)
    assert IMPORTS.format("Arm") in source.text and "compute_observation = observe\n" in source.text
    assert source.shapers(SHAPER_TYPES) == {"compute_reward": ["compute_reward"]}
    assert source.fingerprint() != whole(CHAIN).fingerprint()
    assert source.fingerprint() != whole(KEPT.replace("Arm", "Leg")).fingerprint()
    assert source.fingerprint() == whole(KEPT.replace("import torch\n", "")).fingerprint()
    assert "import" not in shaping_source(KEPT, ["compute_reward"]).text


def test_definitions_are_joined_without_replacing_others():
    host = whole("K = 2.0\n\n\ndef f(x):\n    return K * x\n\n\ndef compute_reward(a):\n    return f(a)\n")
    donor = whole("K = 5.0\n\n\ndef f(x):\n    return K + x\n\n\ndef compute_goal(b):\n    return f(b)\n")
    functions = {}
    exec(host.joined(donor, ["compute_goal"]).text, functions)
    assert (functions["compute_reward"](3.0), functions["compute_goal"](3.0)) == (6.0, 8.0)


def test_imports_are_merged_and_conflicts_refused():
    host = whole("from math import cos\n\n\ndef compute_reward(a):\n    return a + cos(1.0)\n")
    donor = "def compute_goal(b):\n    return b * {0}(1.0)\n"
    text = host.joined(whole("from math import cos, sin\n\n\n" + donor.format("sin")), ["compute_goal"]).text
    assert text.startswith("from math import sin\nfrom math import cos\n\n\ndef compute_reward")
    for other in ("from cmath import cosh as cos\n\n\n", "def cos(x):\n    return 2.0 * x\n\n\n"):
        with pytest.raises(UnsupportedCode, match="imported by one"):
            host.joined(whole(other + donor.format("cos")), ["compute_goal"])


@pytest.mark.parametrize("body", ["f = x\n    return f", 'return f"{f(x)}"'])
def test_name_that_cannot_be_changed_is_refused(body):
    donor = whole(f"def f(x):\n    return x\n\n\ndef compute_goal(f, x):\n    {body}\n")
    with pytest.raises(UnsupportedCode):
        donor.renamed({"f": "g"})


def test_statements_in_one_line_stay_together():
    text = "A = 1; B = 2\n\n\ndef compute_reward(a):\n    return A\n"
    assert whole(text).text == text
    assert Source(text).without(["compute_reward", "A"]).text == "A = 1; B = 2\n"


CALLS = "def compute_reward(x):\n    return compute_goal(x) + a\ndef compute_goal(x):\n    return 1\n"


@pytest.mark.slow
@pytest.mark.parametrize("line", ["a=a\n", "[a,b,c]=a,b,c\n", "compute_goal(a)\n"])
def test_work_to_reduce_is_linear(line):
    """A text of 100,000 characters takes about 2 s; with work that grows as the square it took 35 s."""
    short, long = (instructions(reduced, CALLS + line * count, ["compute_reward"]) for count in (50, 200))
    assert long < 5 * short  # if it were quadratic, 16


@pytest.mark.slow
@pytest.mark.parametrize("line", ["a=a\n" * 6_000, "#" + "_" * 30_000 + "compute_goal\n", "#" + "_" * 99_000 + "\n"])
def test_longest_texts_are_reduced(line):
    text = CALLS + line
    assert len(text) <= source_module.MAX_CHARACTERS
    assert reduced(text, ["compute_reward"])[1] == ("compute_goal",)
