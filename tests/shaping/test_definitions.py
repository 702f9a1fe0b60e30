"""The shaping functions of a file, found in its text: as loading finds them."""

import sys
from types import ModuleType

import pytest
from helpers import instructions

from envcoder_bench.shaping.loading import load_candidate
from envcoder_bench.shaping.text import definitions, describe_definitions

OTHER = "own_rewards"  # a module that the files import
REWARD = "def compute_reward(a):\n    return a\n"
FILES = {
    "def": REWARD,
    "alias": "def compute_done(a):\n    return a\n",
    "import": f"from {OTHER} import compute_reward\n",
    "import as": f"from {OTHER} import helper as compute_reward, compute_goal as goal\n",
    "brackets": f"from {OTHER} import (  # several\n    compute_reward,\n    compute_goal,  # of a goal\n)\n",
    "continued": f"from {OTHER} import \\\n    compute_reward\n",
    "assigned": f"import {OTHER}\ncompute_reward = {OTHER}.helper\n",
    "assigned twice": "def f(a):\n    return a\n\nx = compute_reward = compute_observation = f\n",
    "annotated": "f = lambda a: a\ncompute_reward: object = f\n",
    "unpacked": "compute_reward, (compute_goal, x) = lambda a: a, (lambda a: {'a': a}, 1)\n",
    "semicolon": "f = lambda a: a; compute_reward = f\n",
    "condition": f"try:\n    import missing_package\nexcept ImportError:\n    from {OTHER} import compute_reward\n",
    "branch": "if True: compute_reward = lambda a: a\nelse:\n    pass\n",
    "decorated": f"@torch.jit.script\n{REWARD}",
    "deleted": f"{REWARD}def compute_goal(a):\n    return a\ndel compute_goal\n",
    "inner": "def compute_reward(a):\n    compute_goal = 1\n    def compute_terminal(): pass\n    return a\n",
    "method": f"{REWARD}class A:\n    def compute_goal(self):\n        pass\n",
    "main": f"{REWARD}if __name__ == '__main__':\n    compute_goal = 1\n",
    "texts": f'"""Doc.\n\ndef compute_goal(a):\n    """\n{REWARD}# compute_torque = 1\n',
    "keywords": f"d = dict(\n    compute_goal=1)\nd['compute_goal'] = 2\n{REWARD}x = 1 == 1\n",
    "attributes": f"import types\nn = types.SimpleNamespace()\nn.compute_goal = 1\n{REWARD}",
}


@pytest.fixture(autouse=True)
def other(monkeypatch):
    module = ModuleType(OTHER)
    module.compute_reward = module.helper = module.compute_goal = lambda a: a
    monkeypatch.setitem(sys.modules, OTHER, module)


@pytest.mark.parametrize("source", FILES.values(), ids=FILES)
def test_functions_are_those_that_loading_finds(source):
    found = load_candidate("mine", source, "mine.py").functions
    names = ["compute_terminal" if name == "compute_done" else name for name in definitions(source).names]
    assert sorted(names) == sorted(found) and found


def test_modules_of_imported_functions_are_shown():
    source = f"from {OTHER} import helper as compute_reward\nfrom .x import *\ndef compute_goal(a): return a\n"
    found = definitions(source)
    assert found.names == {"compute_reward": OTHER, "compute_goal": ""} and found.whole == [".x"]
    assert describe_definitions(found, ["compute_goal"]) == "compute_goal, all of .x"
    assert describe_definitions(found, list(found.names)) == f"compute_reward (from {OTHER}), compute_goal, all of .x"


@pytest.mark.parametrize(
    "text", ["", "  x", "def", "async def", "from", "import", "= 1", "((", "'", "\x00", "if", ";=;"]
)
def test_text_that_is_not_python_has_what_precedes_the_fault(text):
    assert not definitions(text).names
    assert [*definitions(f"def compute_reward(a):\n    return a\n\n\n{text}").names] == ["compute_reward"]


@pytest.mark.slow
@pytest.mark.parametrize("text", ["a;", "a=", "b,", "if a:b=c;", "(", "'a"])
def test_work_is_linear_in_the_length(text):
    short, long = (instructions(definitions.__wrapped__, text * count) for count in (500, 2000))
    assert long < 5 * short + 1000  # if it were quadratic, 16
