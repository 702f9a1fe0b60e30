import ast
from textwrap import dedent

import pytest

from envcoder_bench.shaping.loading import helper_names
from envcoder_bench.shaping.scan import Scan


def scan(code):
    return Scan(ast.parse(dedent(code)), helper_names())


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
        "def f(x): return getattr(torch, 'rand')(3)",
        "def f(x, name): return getattr(torch, name)(3)",
        "import numpy.random as r\ndef f(x, name): return getattr(r, name)(3)",
        "def f(x): return getattr(x, 'uniform_')()",
        "def f(x): return vars(torch)['x'](3)",
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
def test_code_without_random_calls_is_accepted(code):
    assert scan(code).random_line("f") is scan(code).generator_line("f") is None


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
        "from torch.distributions import Normal\ndef f(x): return Normal(x, 1.0).sample()",
        "import torch.distributions as D\ndef f(x): return D.Uniform(x, x + 1).rsample()",
        "def f(x): return torch.distributions.Categorical(x).sample()",
    ],
)
def test_random_calls_of_the_groups_stream_are_found(code):
    assert scan(code).random_line("f") is not None and scan(code).generator_line("f") is None


def test_line_of_a_random_call_is_reported():
    assert scan("def f(x):\n    y = x\n    return torch.rand(3)").random_line("f") == 3


def test_missing_module_has_no_random_calls():
    code = "try:\n    import nowhere\nexcept ImportError:\n    nowhere = None\n"
    "def f(x): return x if nowhere is None else nowhere.a(x)"
    tree = ast.parse(code)
    assert Scan(tree, loaded={"torch": None}).generator_line("f") is None
    assert Scan(tree, loaded={"nowhere": None}).generator_line("f") == 2
    later = ast.parse("def f(x):\n    import nowhere\n    return nowhere.a(x)")  # not tried yet
    assert Scan(later, loaded={}).generator_line("f") == 2
