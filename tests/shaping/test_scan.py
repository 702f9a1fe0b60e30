import ast
from textwrap import dedent

import pytest

from envcoder_bench.shaping import redirect
from envcoder_bench.shaping.scan import Scan


def scan(code):
    return Scan(ast.parse(dedent(code)), redirect.helper_names())


@pytest.mark.parametrize(
    "code",
    [
        "def f(x): return x + torch.rand(3)",
        "def f(x): return torch.randn_like(x)",
        "def f(x): return torch.normal(x, 1.0)",
        "def f(x): return x.clone().uniform_()",
        "def f(x): return torch.bernoulli(x)",
        "def f(x): return torch.nn.functional.dropout(x)",
        "def f(x): return np.random.normal()",
        "from torch import rand as r\ndef f(x): return r(3)",
        "from torch import *\ndef f(x): return rand(3)",
        "import random\ndef f(x): return x * random.gauss(0, 1)",
        "import mylib\ndef f(x): return mylib.draw(x)",
        "from torch.distributions import Beta\ndef f(x): return Beta(x, x).mean",
        "def f(x): return getattr(torch, 'ra' + 'nd')(3)",
        "def f(x): torch.manual_seed(1); return x",
        "def g(x): return torch.rand(3)\ndef f(x): return g(x)",
        "draw = torch.rand\ndef f(x): return draw(3)",
        "class A:\n    def __call__(self, x): return torch.rand(3)\na = A()\ndef f(x): return a(x)",
        "if True:\n    def g(): return torch.rand(3)\ndef f(x): return g()",
        "f = lambda x: torch.rand(3)",
    ],
)
def test_sees_calls_of_a_librarys_generator(code):
    assert scan(code).random_line("f") is not None


@pytest.mark.parametrize(
    "code",
    [
        "def f(x): return torch.nn.functional.normalize(x)",
        "def f(surface_normals): return surface_normals.sum()",
        "def f(state_dict): return state_dict['random_goal']",
        "from isaacgymenvs.utils.torch_jit_utils import *\ndef f(x): return torch_rand_float(0.0, 1.0, (3, 1), 'cpu')",
        "from isaacgym.torch_utils import torch_rand_float\ndef f(x): return torch_rand_float(0.0, 1.0, (3, 1), 'cpu')",
        "def randomize(x): return x + 1\ndef f(x): return randomize(x)",
        "def f(x):\n    rand = x * 2\n    return rand",
        "def g(x): return torch.rand(3)\ndef f(x): return x",
        "import random\ndef g(x): return random.random()\ndef f(x): return x",
        (
            "import torch, math\nimport torch.nn.functional as F\nfrom typing import Dict\n"
            "def f(x): return F.relu(x) * math.pi"
        ),
    ],
)
def test_leaves_other_code_alone(code):
    assert scan(code).random_line("f") is None


@pytest.mark.parametrize(
    "code",
    [
        "def f(x): return torch.randperm(len(x))",
        "def f(x): return torch.poisson(x)",
        "def f(x): return torch.rand(3, generator=torch.Generator())",
        "def f(x): return np.random.normal()",
        "import random\ndef f(x): return x * random.uniform(0, 1)",
        "from numpy.random import uniform\ndef f(x): return uniform()",
        "import mylib\ndef f(x): return mylib.draw(x)",
        "def f(x): return getattr(torch, 'ra' + 'nd')(3)",
        "def f(x): torch.manual_seed(1); return x",
    ],
)
def test_sees_what_the_group_s_stream_cannot_give(code):
    assert scan(code).generator_line("f") is not None


@pytest.mark.parametrize(
    "code",
    [
        "def f(x): return torch.rand(3) + torch.randn_like(x) + torch.randint(0, 2, (3,))",
        "def f(x): return torch.nn.functional.dropout(x).uniform_(0, 1)",
        "from torch import rand as r\ndef f(x): return r(3)",
        "draw = torch.normal\ndef f(x): return draw(x, 1.0)",
    ],
)
def test_sees_what_it_can_give(code):
    assert scan(code).random_line("f") is not None and scan(code).generator_line("f") is None


def test_names_the_line():
    assert scan("def f(x):\n    y = x\n    return torch.rand(3)").random_line("f") == 3


@pytest.mark.parametrize(
    "code",
    [
        "n = 0\ndef f(x):\n    global n\n    n += 1\n    return x",
        "cache = {}\ndef f(x):\n    cache['x'] = x\n    return x",
        "history = []\ndef f(x):\n    history.append(x)\n    return x",
        "def f(x):\n    f.last = x\n    return x",
        "def f(x, seen=[]):\n    return x",
        "total = torch.zeros(3)\ndef f(x):\n    total.add_(x)\n    return total",
        "import itertools\ncount = itertools.count()\ndef f(x): return x * next(count)",
        "from functools import lru_cache\n@lru_cache(None)\ndef g(): return 1\ndef f(x): return g()",
        "class A:\n    def step(self, x): self.x = x; return x\na = A()\ndef f(x): return a.step(x)",
        (
            "class A:\n    def __init__(self): self.h = []\n    def step(self, x): self.h.append(x)\n"
            "a = A()\ndef f(x): return a.step(x)"
        ),
        "def make():\n    h = []\n    def g(x):\n        h.append(x)\n        return x\n    return g\nf = make()",
        "def f(x):\n    torch.backends.flag = x\n    return x",
    ],
)
def test_sees_memory(code):
    assert scan(code).memory_line("f") is not None


@pytest.mark.parametrize(
    "code",
    [
        (
            "def f(x):\n    parts = []\n    parts.append(x)\n    y = x.clone()\n    y[:, 0] = 1\n"
            "    y.mul_(2)\n    return y"
        ),
        "SCALE = {'a': 1.0}\ndef f(x): return x * SCALE['a']",
        "def f(x):\n    terms = {}\n    terms['a'] = x\n    terms.update(b=x)\n    return terms",
        "def f(x): return torch.relu_(x.clone())",
        "class Config:\n    scale = 2.0\ndef f(x): return x * Config.scale",
        (
            "class A:\n    def __init__(self, w): self.w = w\n"
            "    def __call__(self, x): return self.w * x\na = A(2)\ndef f(x): return a(x)"
        ),
        "log = []\ndef g(x): log.append(x)\ndef f(x): return x",
        "W = torch.ones(3)\nW.mul_(2)\ndef f(x): return x * W",
    ],
)
def test_sees_no_memory_where_there_is_none(code):
    assert scan(code).memory_line("f") is None
