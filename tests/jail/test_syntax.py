"""Each rule of the syntax check by itself, with the words that it says."""

from __future__ import annotations

import ast
import sys

import pytest

from envcoder_bench.jail import names
from envcoder_bench.jail.syntax import MAX_DEPTH, MAX_NODES, refusal

LIBRARIES = {
    **{name: {"quat_mul", "scale"} for name in names.HELPERS},
    "envcoder_bench.tasks.ant.human": {"compute_reward"},
}


def refused(code):
    found = refusal(ast.parse(code), LIBRARIES)
    return None if found is None else f"{found.line}: {found.reason}"


@pytest.mark.parametrize(
    "code, told",
    [
        ("x = 1\nimport os", "2: imports os; untrusted code may import torch, math"),
        ("from os import path", "1: imports from os;"),
        ("from torch import load", "1: imports torch.load, which untrusted code may not use"),
        ("from torch import *", "1: imports * from torch: name what you use"),
        ("import torch as t\nt.load", "2: uses torch.load, which"),
        ("import torch\nx = torch", "2: uses the module torch as a value"),
        ("x = torch.nn", "1: uses the module torch.nn as a value"),
        ("x = torch.cuda", "1: uses the module torch.cuda as a value"),
        ("import isaacgym.torch_utils\nx = isaacgym", "2: uses the module isaacgym as a value"),
        ("torch.sinn(3)", "1: uses torch.sinn, which untrusted code may not (did you mean sin"),
        ("x = 1\nx.summ()", "2: uses .summ, which untrusted code may not (did you mean sum?)"),
        ("f = undefined", "1: uses undefined, which it does not define"),
        ("def f(x=3, *, y: open = 4): pass", "1: uses open, which it does not define"),
        ("class A: pass", "1: defines a class"),
        ("def f():\n    global x", "2: uses global"),
        ("async def f(): pass", "1: uses async"),
        ("def f():\n    yield 1", "2: uses yield"),
        ("with x: pass", "1: uses with for anything but torch.no_grad()"),
        ("x = 1\n@x\ndef f(): pass", "3: decorates f with something else"),
        ("__x__ = 1", "1: names __x__: names with two underscores"),
        ("print(__x=1)", "1: names __x: names with two underscores"),
        ("open = 1", "1: gives open, which is Python's own, another meaning"),
        ("math = 1", "1: gives math, which stands for math, another meaning"),
        ("x = 1\nx.y = 2", "2: changes .y of an object"),
        ("x = " + "[" * MAX_DEPTH + "]" * MAX_DEPTH, "1: is nested more than"),
        ("x = [" + "1," * MAX_NODES + "]", "1: is too large"),
    ],
)
def test_refused(code, told):
    assert (refused(code) or "passed").startswith(told)


@pytest.mark.skipif(sys.version_info < (3, 10), reason="match is newer")
def test_new_syntax_is_not_allowed_unseen():
    assert "uses Match" in str(refused("match 1:\n    case 2:\n        pass"))


@pytest.mark.parametrize(
    "code",
    [
        "from isaacgym.torch_utils import *\nx = quat_mul(1, 2)",
        "from isaacgymenvs.utils.torch_jit_utils import quat_mul as q\nx = q(1, 2)",
        "import isaacgym.torch_utils as tu\nx = tu.scale(1, 2, 3)",
        "import isaacgym.torch_utils\nx = isaacgym.torch_utils.scale(1, 2, 3)",
        "from envcoder_bench.tasks.ant.human import compute_reward as own\nx = own({})",
        "import torch.nn.functional as F\nx = F.relu(torch.zeros(3))",
        "from torch import nn\nx = nn.functional.relu(torch.zeros(3))",
        "x: torch.Tensor = torch.Tensor.sum(torch.zeros(3))",
        "@torch.jit.script\ndef f(x: Tensor) -> Tuple[Tensor, Dict[str, Tensor]]:\n    return x, {}",
        "from torch.jit import script\n@script\ndef f(x):\n    return x",
        "x = [i for i in range(3) if i]\ny = {k: v for k, v in zip(x, x)}\nz = lambda a, *b, c=1, **d: (a, b, c, d)",
        "try:\n    x = 1\nexcept (KeyError, ValueError) as e:\n    print(f'{e!r:>10}')\nfinally:\n    pass",
        "if __name__ == '__main__':\n    print('hello')",
        "import numpy as np\nimport math as m\nx = np.pi * m.tau",
        "x = torch.cuda.is_available()",
        "_private, x = 1, 2\nx = _private + x",
    ],
)
def test_passes(code):
    assert refused(code) is None


def test_lists_name_what_is_there():
    """A list with slips would refuse what it means to let through."""
    import math
    import typing

    import numpy
    import torch

    for module, own in (("torch", torch), ("math", math), ("numpy", numpy), ("typing", typing)):
        assert not [name for name in names.MODULES[module] if not hasattr(own, name)], module
    for module in ("nn.functional", "linalg", "special", "jit", "cuda"):
        own = torch
        for part in module.split("."):
            own = getattr(own, part)
        assert not [name for name in names.MODULES[f"torch.{module}"] if not hasattr(own, name)], module


@pytest.mark.parametrize(
    "name", ["load", "save", "compile", "set_default_dtype", "hub", "ops", "_C", "from_file", "Generator"]
)
def test_lists_leave_out_what_does_more_than_compute(name):
    assert name not in names.MODULES["torch"] and name not in names.METHODS
    assert not any(own.startswith("_") for module in names.MODULES.values() for own in module)
