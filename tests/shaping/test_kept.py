"""Values that functions keep between calls are found by a call."""

import random
import threading

import numpy as np
import pytest
import torch
from shaping_fakes import FakeTask, shaping

from envcoder_bench.compile.trace import trace
from envcoder_bench.shaping.kept import FIRST, MOST, contents

KEEPING = {
    "function's attribute": """
def compute_reward(dof_pos):
    own = compute_reward
    own.calls = getattr(own, "calls", 0) + 1
    return dof_pos[:, 0] * own.calls
""",
    "swapped references": """
ONE, TWO = [1.0], [2.0]
BOTH = {"a": ONE, "b": TWO}
def swap(both):
    both["a"], both["b"] = both["b"], both["a"]
    return both["a"][0]
def compute_reward(dof_pos):
    return dof_pos[:, 0] * swap(BOTH)
""",
    "counts by name": """
import collections
COUNTS = collections.defaultdict(int)
def count(counts):
    counts["calls"] += 1
def compute_reward(dof_pos):
    count(COUNTS)
    return dof_pos[:, 0] * COUNTS["calls"]
""",
    "attribute of a tensor": """
SCALE = torch.ones(3)
def count(x):
    x.calls = getattr(x, "calls", 0) + 1
    return x
def compute_reward(dof_pos):
    return (dof_pos * count(SCALE)).sum(dim=1)
""",
    "large array, behind a long table": """
TABLE = list(range(30_000))
class Buffers: pass
BUFFERS = Buffers()
BUFFERS.history = np.zeros(90_000)
def count(buffers):
    history = buffers.history
    history[-1] += 1
    return float(history[-1])
def compute_reward(dof_pos):
    return dof_pos[:, 0] * count(BUFFERS)
""",
    "numbers of a tensor": """
COUNT = torch.zeros(1)
def compute_reward(dof_pos):
    count = COUNT.numpy()
    count += 1
    return dof_pos[:, 0] * COUNT
""",
    "slots": """
class Buffers:
    __slots__ = ("calls",)
BUFFERS = Buffers()
BUFFERS.calls = 0
def count(buffers):
    buffers.calls += 1
def compute_reward(dof_pos):
    count(BUFFERS)
    return dof_pos[:, 0] * BUFFERS.calls
""",
    "closure and partial": """
import functools
def made():
    box = [0]
    def add(box, x):
        held = box
        held[0] = held[0] + 1
        return x[:, 0] * held[0]
    return functools.partial(add, box)
ADD = made()
def compute_reward(dof_pos):
    return ADD(dof_pos)
""",
    "buffers of a network": """
NORM = torch.nn.BatchNorm1d(3)
def compute_reward(dof_pos):
    return NORM(dof_pos)[:, 0]
""",
}
# (definition, an expression of one number that stores something)
STORES = {
    "list": ("SEEN = []", "(SEEN.append(1), len(SEEN))[1]"),
    "dictionary": ("CACHE = {}", "CACHE.setdefault('x', 2.0)"),
    "default argument": ("def add(seen=[]):\n    seen.append(1)\n    return len(seen)", "add()"),
    "global": ("n = 0\ndef add():\n    global n\n    n += 1\n    return n", "add()"),
    "closure": (
        "def made():\n    n = 0\n    def add():\n        nonlocal n\n        n += 1\n        return n\n    return add\n"
        "ADD = made()",
        "ADD()",
    ),
    "tensor in place": ("TOTAL = torch.zeros(1)", "TOTAL.add_(1.0)"),
    "iterator": ("import itertools\nCOUNT = itertools.count()", "next(COUNT)"),
    "lru_cache": ("import functools\n@functools.lru_cache(None)\ndef scale(x):\n    return x * 2.0", "scale(1.0)"),
    "cached property": (
        "import functools\nclass A:\n    @functools.cached_property\n    def x(self):\n        return 2.0\nOWN = A()",
        "OWN.x",
    ),
    "attribute of a class": (
        "class A:\n    n = 0\n    @classmethod\n    def add(cls):\n        cls.n += 1\n        return cls.n",
        "A.add()",
    ),
    "attribute of an enumeration": (
        "import enum\nclass E(enum.Enum):\n    A = 1\ndef keep(x):\n    E.A.last = x\n    return 1.0",
        "keep(2.0)",
    ),
}
# (definition, a draw of one number)
GENERATORS = {
    "numpy's generator": ("RNG = np.random.default_rng(0)", "RNG.normal()"),
    "numpy's older generator": ("RNG = np.random.RandomState(0)", "RNG.rand()"),
    "bits of numpy's generator": ("BITS = np.random.MT19937(0)", "np.random.Generator(BITS).normal()"),
    "children of numpy's generator": (
        "SEEDS = np.random.SeedSequence(0)",
        "np.random.default_rng(SEEDS.spawn(1)[0]).normal()",
    ),
    "children of a generator": ("RNG = np.random.default_rng(0)", "len(RNG.bit_generator.seed_seq.spawn(1))"),
    "Python's generator": ("import random\nRNG = random.Random(0)", "RNG.gauss(0, 1)"),
    "Python's generator, derived": (
        "import random\nclass Own(random.Random):\n    pass\nRNG = Own(0)",
        "RNG.random()",
    ),
    "torch's generator": ("RNG = torch.Generator().manual_seed(0)", "torch.rand(1, generator=RNG)"),
    "Sobol sequence": ("SOBOL = torch.quasirandom.SobolEngine(1)", "SOBOL.draw(1)[0]"),
    "method of a generator": ("DRAW = np.random.default_rng(0).normal", "DRAW()"),
    "built-in method of a generator": ("import random\nDRAW = random.Random(0).random", "DRAW()"),
}
KEEPING.update(
    {
        name: f"{before}\ndef compute_reward(dof_pos):\n    return dof_pos[:, 0] * {draw}\n"
        for name, (before, draw) in {**STORES, **GENERATORS}.items()
    }
)
ORDINARY = {
    "objects of one call": """
import functools
class Builder:
    def __init__(self):
        self.terms = {}
    def add(self, name, x):
        self.terms[name] = x
        return self
    @functools.cached_property
    def weight(self):
        return 0.5
def compute_reward(dof_pos):
    builder = Builder().add("a", dof_pos[:, 0])
    parts = [builder.terms["a"] * builder.weight]
    parts.append(parts[0])
    return sum(parts)
""",
    "a cache that was filled while the file was loaded": """
import functools
@functools.lru_cache(None)
def scale(x):
    return x * 2.0
scale(1.0)
def compute_reward(dof_pos):
    return dof_pos[:, 0] * scale(1.0)
""",
    "generators of the process": """
import random
from random import gauss, uniform
INSTANCE, OLDER, DEFAULT, NORMAL = random._inst, np.random.mtrand._rand, torch.default_generator, np.random.normal
def compute_reward(dof_pos):
    drawn = INSTANCE.random() + OLDER.rand() + gauss(0, 1) + NORMAL() + torch.rand(1, generator=DEFAULT)
    return dof_pos[:, 0] * (drawn + torch.randperm(3)[0] + uniform(0, 1))
""",
    "generators that are not drawn from": """
import random
ONE, TWO, THREE = np.random.default_rng(0), random.Random(0), torch.Generator()
FOUR, FIVE, SIX = np.random.RandomState(0), torch.quasirandom.SobolEngine(1), random.SystemRandom()
DRAW, FIRST = ONE.normal, np.random.RandomState(1).rand(3)
def compute_reward(dof_pos):
    return dof_pos[:, 0] * FIRST[0] * SIX.random()
""",
    "constants of all sorts": """
import collections, enum, functools, logging, warnings
LOG = logging.getLogger("mine")
class Gait(enum.Enum):
    TROT = 1
class Box:
    scale = np.ones(3)
BOX, TABLE, QUEUE, NAMES = Box(), {Gait.TROT: [1.0]}, collections.deque([1.0]), {"a", "b"}
NET = torch.nn.Linear(3, 1).eval()
SCALED = functools.partial(lambda x, scale: x * scale, scale=0.5)
def squared(out):
    out[:, 0] = out[:, 0] ** 2
    return out
def compute_reward(dof_pos):
    LOG.debug("called")
    warnings.warn("an ordinary warning")
    x = squared(dof_pos.clone()) * torch.as_tensor(BOX.scale, dtype=torch.float32)
    return SCALED(x[:, 0]) * TABLE[Gait.TROT][0] * QUEUE[0] + NET(x)[:, 0] * len(NAMES)
""",
    "defaults that are read": """
import collections
WEIGHTS = collections.defaultdict(lambda: 0.5, {"a": 1.0})
def compute_reward(dof_pos):
    return sum(WEIGHTS[name] * dof_pos[:, k] for k, name in enumerate("abc"))
""",
    "combined flags": """
import enum
class Part(enum.Flag):
    LEG = 1
    ARM = 2
def compute_reward(dof_pos):
    return dof_pos[:, 0] * (Part.LEG | Part.ARM).value
""",
    "objects that cannot be looked at": """
import weakref
class Key:
    def __repr__(self):
        raise RuntimeError("no name")
class Name(str):
    def __repr__(self):
        raise RuntimeError("no name")
class Other:
    __slots__ = ("__d",)
    def __getattr__(self, name):
        return {}[name]
class Liar:
    @property
    def __class__(self):
        raise KeyError("no class")
class Hidden:
    def __getattribute__(self, name):
        raise KeyError(name)
class Odd(torch.Tensor):
    @classmethod
    def __torch_function__(cls, *given, **more):
        raise KeyError("no function")
TABLE, NAME, OTHER, LIAR, HIDDEN = {Key(): 1.0}, Name("x"), Other(), Liar(), Hidden()
GONE, LARGE, LAZY = weakref.proxy(Key()), 10**5000, torch.nn.LazyLinear(1)
NESTED, ODD = torch.nested.nested_tensor([torch.zeros(1), torch.zeros(2)]), torch.zeros(2).as_subclass(Odd)
def compute_reward(dof_pos):
    return dof_pos[:, 0] * sum(TABLE.values())
""",
    "an object that refers to itself": """
class Node: pass
NODE = Node()
NODE.own, NODE.weight = NODE, float("nan")
def compute_reward(dof_pos):
    return dof_pos[:, 0]
""",
}


@pytest.mark.parametrize("code", KEEPING.values(), ids=KEEPING)
def test_stored_values_are_found_by_a_call(code):
    task = FakeTask(4)
    checked = shaping(code, task=task)
    assert checked.functions["reward"].stateful_line is not None
    assert checked.functions["observation"].stateful_line is None  # the baseline's
    traced, refused = trace(checked, task.state, task.constants, task)
    assert "reward" not in traced.programs and "observation" in traced.programs
    assert [own.function.type for own in refused] == ["compute_reward"]


@pytest.mark.filterwarnings("ignore:an ordinary warning", "ignore:The PyTorch API of nested")
@pytest.mark.parametrize("code", ORDINARY.values(), ids=ORDINARY)
def test_constants_and_local_values_are_not_kept(code):
    assert shaping(code).functions["reward"].stateful_line is None


def test_large_modules_are_compared_in_part():
    one = [list(range(5_000)) for _ in range(100)]
    assert len(contents({"table": one[0]})) == 2 + FIRST
    assert MOST <= len(contents({"tables": one})) < MOST + FIRST


def test_action_that_stores_once_is_found_whatever_width_is_tried_first():
    code = """
    BOX = []
    def keep(box, x):
        if not box:
            box.append(float(x.mean()))
        return box[0]
    def compute_torque(dof_pos, actions):
        return dof_pos * keep(BOX, dof_pos) + actions[:, :1]
    """
    with pytest.warns(RuntimeWarning, match="takes actions of any width"):
        assert shaping(code).functions["command"].stateful_line == 7


def test_draws_of_other_threads_are_not_stored_values():
    module = {"a": random.random, "b": np.random.normal, "c": torch.default_generator}
    before = contents(module)
    other = threading.Thread(target=lambda: (random.random(), np.random.normal(), torch.rand(1)))
    other.start()
    other.join()
    assert contents(module) == before
