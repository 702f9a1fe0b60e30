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
def test_calls_of_library_generators_are_found(code):
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
def test_code_without_random_calls_is_accepted(code):
    assert scan(code).random_line("f") is None


@pytest.mark.parametrize(
    "code",
    [
        "def f(x): return torch.randperm(len(x))",
        "def f(x): return torch.poisson(x)",
        "from torch.distributions import Beta\ndef f(x): return Beta(x, x).sample()",
        "def f(x): return torch.distributions.Gamma(x, x).rsample()",
        "import random\ndef f(x): return random.sample(x, 1)",
        "def f(x): return torch.rand(3, generator=torch.Generator())",
        "def f(x): return np.random.normal()",
        "import random\ndef f(x): return x * random.uniform(0, 1)",
        "from numpy.random import uniform\ndef f(x): return uniform()",
        "import mylib\ndef f(x): return mylib.draw(x)",
        "def f(x): return getattr(torch, 'ra' + 'nd')(3)",
        "def f(x): torch.manual_seed(1); return x",
    ],
)
def test_random_calls_outside_the_groups_stream_are_found(code):
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
def test_random_calls_of_the_groups_stream_are_found(code):
    assert scan(code).random_line("f") is not None and scan(code).generator_line("f") is None


def test_line_of_a_random_call_is_reported():
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
def test_memory_between_calls_is_found(code):
    assert scan(code).stateful_line("f") is not None


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
def test_no_memory_is_found_in_stateless_code(code):
    assert scan(code).stateful_line("f") is None


BUILDER = """
class Builder:
    def __init__(self):
        self.terms, self.total = {}, 0.0
    def add(self, name, x):
        self.terms[name] = x
        self.total = self.total + x
        return self
"""


@pytest.mark.parametrize(
    "code",
    [
        BUILDER + "def f(x):\n    return Builder().add('a', x).total",
        BUILDER + "class Other(Builder):\n    pass\ndef f(x):\n    b = Other()\n    return b.add('a', x).total",
        BUILDER + "def g(x):\n    return Builder().add('a', x)\ndef f(x):\n    return g(x).total",
        BUILDER + "def f(x):\n    return Builder().add('a', x).total\nif __name__ == '__main__':\n    Builder()",
        "from dataclasses import dataclass, field\n@dataclass\nclass A:\n"
        "    terms: dict = field(default_factory=dict)\n"
        "    def add(self, x):\n        self.terms['a'] = x\ndef f(x):\n    a = A()\n    a.add(x)\n"
        "    return a.terms['a']",
        "from functools import cached_property\nclass A:\n    @cached_property\n    def x(self): return 3\n"
        "def f(x): return x * A().x",
        "def f(x):\n    parts = {}\n    def add(name, y):\n        parts[name] = y\n    add('a', x)\n    return parts",
        "def f(x):\n    total = 0.0\n    def add(y):\n        nonlocal total\n        total = total + y\n"
        "    add(x)\n    return total",
        "W = {'a': 1.0}\ndef f(x):\n    w = W['a']\n    y = w * x\n    return y",
        "W = {'a': 1.0}\ndef f(x):\n    w = dict(W)\n    w['a'] = 2.0\n    return w['a'] * x",
        "TERMS = [('a', 1.0)]\ndef f(x):\n    parts = {}\n    for name, w in TERMS:\n        parts[name] = w * x\n"
        "    return parts",
    ],
)
def test_local_values_are_not_memory(code):
    assert scan(code).stateful_line("f") is None


@pytest.mark.parametrize(
    "code",
    [
        BUILDER + "b = Builder()\ndef f(x):\n    return b.add('a', x).total",
        BUILDER + "def make():\n    b = Builder()\n    return lambda x: b.add('a', x).total\nf = make()",
        BUILDER + "def f(x, b=Builder()):\n    return b.add('a', x).total",
        BUILDER + "class Holder:\n    b = Builder()\ndef f(x):\n    return Holder.b.add('a', x).total",
        BUILDER
        + "def once(c): return c()\nclass Other(Builder): pass\nb = once(Other)\ndef f(x): return b.add('a', x)",
        BUILDER.replace("class B", "def once(c): return c()\n@once\nclass B") + "def f(x): return Builder.add('a', x)",
        BUILDER + "class Base:\n    all = []\n    def __init_subclass__(cls): cls.all.append(cls())\n"
        "class Own(Base, Builder): pass\ndef f(x): return Base.all[0].add('a', x)",
        BUILDER
        + "b = eval('Builder()')\ndef f(x): return globals()['b'].add('a', x) if False else Builder().add('a', x)",
        "from enum import Enum\nclass E(Enum):\n    A = 1\n    def keep(self, x):\n        self.last = x\n"
        "        return x\n"
        "def f(x): return E.A.keep(x)",
        "class A:\n    terms = {}\n    def add(self, x): self.terms['a'] = x\ndef f(x): return A().add(x)",
        "class A:\n    made = []\n    def __init__(self): self.made.append(self)\ndef f(x): return A()",
        "CACHE = {}\nclass A:\n    def __init__(self): self.cache = CACHE\n    def add(self, x): self.cache['a'] = x\n"
        "def f(x): return A().add(x)",
        "class A:\n    count = 0\n    @classmethod\n    def add(cls): cls.count += 1\ndef f(x): return A.add()",
        "CACHE = {}\ndef f(x):\n    c = CACHE\n    c['a'] = x\n    return x",
        "CACHE = {'a': []}\ndef f(x):\n    c = CACHE['a'] if True else None\n    c.append(x)\n    return x",
        "ALL = [[]]\ndef f(x):\n    for one in ALL:\n        one.append(x)\n    return x",
        "class A: pass\ndef f(x):\n    a = A\n    a.last = x\n    return x",
        "def make():\n    h = []\n    def g(x):\n        h.append(x)\n        return x\n    return g\n"
        "TERMS = [make()]\n"
        "def f(x): return TERMS[0](x)",
    ],
)
def test_values_that_outlive_a_call_are_memory(code):
    assert scan(code).stateful_line("f") is not None


@pytest.mark.parametrize(
    "code",
    [
        "class A:\n    def _a(self, x): return x\n    def run(self, x, name): return getattr(self, '_' + name)(x)\n"
        "def f(x): return A().run(x, 'a')",
        "from dataclasses import fields\ndef f(cfg): return [getattr(cfg, x.name) for x in fields(cfg)]",
        "def f(x): return getattr(torch, 'sin')(x)",
        "def f(x):\n    vars = {'a': x}\n    return vars['a']",
        "import logging, warnings, copy, contextlib, types, time\n"
        "def f(x):\n    logging.info('a')\n    warnings.warn('b')\n    with contextlib.suppress(KeyError):\n"
        "        return copy.copy(x)",
    ],
)
def test_common_python_has_no_random_calls(code):
    assert scan(code).random_line("f") is None and scan(code).generator_line("f") is None


@pytest.mark.parametrize(
    "code",
    [
        "def f(x): return getattr(torch, 'rand')(3)",
        "def f(x, name): return getattr(torch, name)(3)",
        "import numpy.random as r\ndef f(x, name): return getattr(r, name)(3)",
        "def f(x): return getattr(x, 'uniform_')()",
        "def f(x): return vars(torch)['x'](3)",
    ],
)
def test_names_of_drawing_functions_are_recognized(code):
    assert scan(code).random_line("f") is not None


def test_missing_module_has_no_random_calls():
    code = "try:\n    import nowhere\nexcept ImportError:\n    nowhere = None\n"
    "def f(x): return x if nowhere is None else nowhere.a(x)"
    tree = ast.parse(code)
    assert Scan(tree, loaded={"torch": None}).generator_line("f") is None
    assert Scan(tree, loaded={"nowhere": None}).generator_line("f") == 2
    later = ast.parse("def f(x):\n    import nowhere\n    return nowhere.a(x)")  # not tried yet
    assert Scan(later, loaded={}).generator_line("f") == 2


@pytest.mark.parametrize(
    "code",
    [
        "from torch.distributions import Normal\ndef f(x): return Normal(x, 1.0).sample()",
        "import torch.distributions as D\ndef f(x): return D.Uniform(x, x + 1).rsample()",
        "def f(x): return torch.distributions.Categorical(x).sample()",
    ],
)
def test_distributions_are_drawn_from_the_stream(code):
    assert scan(code).random_line("f") is not None and scan(code).generator_line("f") is None
