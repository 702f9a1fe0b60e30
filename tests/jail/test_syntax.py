"""The rules of the syntax check and the restricted namespace, with their messages."""

import ast

import pytest

from envcoder_bench.jail import names
from envcoder_bench.jail.namespace import prepare
from envcoder_bench.jail.syntax import MAX_DEPTH, MAX_NODES, find_violation
from envcoder_bench.shaping import redirect

LIBRARIES = {
    **{name: frozenset({"quat_mul", "scale"}) for name in names.HELPERS},
    "envcoder_bench.tasks.ant.human": frozenset({"compute_reward"}),
}


def refused(code):
    found = find_violation(ast.parse(code))
    return None if found is None else f"{found.line}: {found.reason}"


@pytest.fixture(scope="module")
def run():
    """Return a function that runs code in a file's namespace."""
    redirect.install()
    given = prepare(LIBRARIES)

    def run(code):
        space = {**given, "__name__": "envcoder_candidate_0_mine"}
        exec(compile(code, "mine.py", "exec", dont_inherit=True), space)
        return space

    return run


@pytest.mark.parametrize(
    "code, told",
    [
        ("x = 1\nx.__dict__", "2: uses __dict__, which untrusted code may not (use dataclasses.asdict or name"),
        ("x = ().__class__", "1: uses __class__, which untrusted code may not (use type(x))"),
        ("x = __builtins__", "1: uses __builtins__, which untrusted code may not"),
        ("f(__x__=1)", "1: uses __x__"),
        ("from torch import sin as __builtins__", "1: uses __builtins__"),
        ("def f(__import__): pass", "1: uses __import__"),
        ("def __getattr__(name): pass", "1: uses __getattr__, which untrusted code may not (use plain attributes"),
        ("class A:\n    def __del__(self): pass", "2: uses __del__"),
        ("class A:\n    __array_interface__ = {}", "2: uses __array_interface__"),
        ("try:\n    pass\nexcept ValueError as __x__:\n    pass", "3: uses __x__"),
        ("global __x__", "1: uses __x__"),
        ("x = '__class__'", "1: uses __class__"),
        ("def f():\n    yield\nf().gi_frame", "3: uses gi_frame"),
        ("x = y.untyped_storage()", "1: uses untyped_storage, which untrusted code may not (use torch's tensor"),
        (
            "import torch\ntorch.sin = 3",
            "2: changes torch (.sin), which untrusted code may not: define one of your own",
        ),
        ("torch.sin = 3", "1: changes torch (.sin)"),
        ("for torch.sin in [3]:\n    pass", "1: changes torch (.sin)"),
        ("with f() as np.pi:\n    pass", "1: changes np (.pi)"),
        ("del torch.sin", "1: changes torch (.sin)"),
        ("import torch as t\nt.nn.functional.relu = 3", "2: changes t (.relu)"),
        ("from torch import Tensor\nTensor.sum = 3", "2: changes Tensor (.sum)"),
        ("x = " + "[" * MAX_DEPTH + "]" * MAX_DEPTH, "1: is nested more than"),
        ("x = [" + "1," * MAX_NODES + "]", "1: is too large"),
    ],
)
def test_forbidden_syntax_is_refused(code, told):
    assert (refused(code) or "passed").startswith(told)


@pytest.mark.parametrize(
    "pattern, told",
    [
        ("object(__class__=c)", "__class__"),
        ("object(tb_frame=f)", "tb_frame"),
        ("[*__x__]", "__x__"),
        ("{**__x__}", "__x__"),
    ],
)
def test_attributes_in_match_patterns_are_refused(pattern, told):
    assert refused(
        f"match x:\n    case {pattern}:\n        pass"
    ) == f"2: uses {told}, which untrusted code may not" + (" (use type(x))" if told == "__class__" else "")


@pytest.mark.parametrize(
    "code",
    [
        "from isaacgym.torch_utils import *\nx = quat_mul",
        "from isaacgymenvs.utils.torch_jit_utils import quat_mul as q\nx = q",
        "import isaacgym.torch_utils as tu\nx = tu.scale",
        "import isaacgym.torch_utils\nx = isaacgym.torch_utils.scale",
        "from envcoder_bench.tasks.ant.human import compute_reward as own",
        "import torch.nn.functional as F\nx = F.relu(torch.zeros(3))",
        "from torch import nn\nF = nn.functional\nx = F.relu(torch.zeros(3))",
        "from torch.jit import script\n@torch.jit.ignore\ndef f(x: Tensor) -> Tuple[Tensor, Dict[str, Tensor]]:\n"
        "    return x, {}",
        "if __name__ == '__main__':\n    import argparse",
        "import numpy as np, math as m\nx = np.pi * m.tau\nassert isinstance(np.zeros(3), np.ndarray)",
        "class A:\n    def __init__(self):\n        self.__x = self._y = 3\n    def __repr__(self):\n"
        "        return f'{self.__class__.__name__} {type(self).__name__}'\nx = repr(A())\nassert x == 'A A'",
        "from dataclasses import dataclass, asdict\n@dataclass\nclass A:\n    x: int = 3\n"
        "assert asdict(A()) == {'x': 3} == vars(A())",
        "import functools\n@functools.wraps(abs)\ndef f(): pass\nassert f.__name__ == 'abs'",
        "import logging, warnings\nlog = logging.getLogger(__name__)\nlog.info('%s', 3)\nwarnings.warn('x')\n"
        "with warnings.catch_warnings(record=True) as caught:\n    pass\nassert caught == []",
        "type, input, open = 1, 2, 3\nx = '{} {0}'[:2].format(type) + str(input)",
        "try:\n    import scipy\nexcept ImportError:\n    scipy = None\nassert scipy is None",
        "try:\n    from torch import os\nexcept ImportError as error:\n    assert 'torch.os' in str(error)",
        "x = torch\ny = getattr(x, 'sin')(x.zeros(3))\nassert hasattr(x, 'cos') and not hasattr(x, 'load')",
        "assert type(3) is int and isinstance(int, type) and type(int) is type",
        "assert type(torch.zeros(3)) is torch.Tensor",
        "assert type(np.zeros(3)) is np.ndarray and type(np.zeros(3)).__name__ == 'ndarray'",
        "from types import SimpleNamespace\nx = SimpleNamespace(a=3)\nx.b = 4\nassert (x.a, x.b) == (3, 4)",
        "from abc import ABCMeta, abstractmethod\nclass A(metaclass=ABCMeta):\n    @abstractmethod\n"
        "    def f(self): ...",
        "def f():\n    try:\n        yield 3\n    finally:\n        pass\nassert list(f()) == [3]",
        "x = 3\ndef f():\n    global x\n    x = 4\nf()",
        "print(torch.zeros(3), sep='', flush=True)",
    ],
)
def test_allowed_code_passes_and_runs(run, code):
    assert refused(code) is None
    run(code)


@pytest.mark.parametrize(
    "code, told",
    [
        ("import os", "untrusted code may not import os (a candidate cannot open files"),
        ("import sys", "untrusted code may not import sys (write plain code instead)"),
        ("import scipy.stats", "untrusted code may not import scipy.stats (a candidate is one file; torch"),
        ("from . import x", "untrusted code may not import . (a candidate is one file"),
        ("from torch import load", "untrusted code may not use torch.load (a candidate cannot open files"),
        ("from torch import _C", "untrusted code may not use torch._C"),
        ("torch.load('x')", "untrusted code may not use torch.load (a candidate cannot open files"),
        ("torch.manual_seed(0)", "untrusted code may not use torch.manual_seed (remove it: every group has"),
        ("np.random.rand(3)", "untrusted code may not use numpy.random (use torch.rand"),
        ("torch.sinn(3)", "there is no torch.sinn (did you mean sin"),
        ("torch.os.system('x')", "untrusted code may not use torch.os"),
        ("t = torch\nt.sin = 3", "untrusted code may not change torch.sin: define a function of your own"),
        ("open('x')", "untrusted code may not use open (a candidate cannot open files"),
        ("eval('1')", "untrusted code may not use eval (write plain code instead)"),
        ("locals()", "untrusted code may not use locals"),
        ("vars()", "untrusted code may not use vars except of an object of a class (use dataclasses.asdict"),
        ("vars(torch)", "untrusted code may not use vars"),
        ("np.ndarray((3,))", "untrusted code may not call np.ndarray (make arrays with np.array)"),
        ("type(np.zeros(3))((3,))", "untrusted code may not call np.ndarray"),
        ("type('A', (), {})", "untrusted code may not make classes with type: write class"),
        ("getattr(3, '__cla' + 'ss__')", "untrusted code may not use .__class__ (use type(x))"),
        ("setattr(torch.Tensor, 'sum', 3)", "untrusted code may not change Tensor: define a function or class"),
        (
            "from functools import singledispatch",
            "untrusted code may not use functools.singledispatch (use isinstance)",
        ),
    ],
)
def test_refused_names_raise_with_a_hint(run, code, told):
    with pytest.raises((ImportError, AttributeError, NameError, TypeError)) as raised:
        run(code)
    assert told in str(raised.value)


def test_names_are_resolved_at_use(run, monkeypatch):
    """Random functions may be patched after the file has been loaded."""
    import torch

    space = run("def f():\n    return torch.rand(3)")
    monkeypatch.setattr(torch, "rand", lambda *size: "drawn")
    assert space["f"]() == "drawn"


def test_listed_names_exist():
    """A misspelt name in a list would refuse the name that it should allow."""
    import importlib

    for module, own in {"torch": names.TORCH_NAMES, **names.PARTIAL_MODULES}.items():
        there = importlib.import_module(module)
        assert not [name for name in own if not hasattr(there, name)], module
    for module in names.OPEN_MODULES:
        importlib.import_module(module)


def test_errors_do_not_refer_to_modules(run):
    code = "try:\n    torch.load\nexcept AttributeError as error:\n    held = error.obj\n"
    assert type(run(code)["held"]).__name__ == "RestrictedModule"
