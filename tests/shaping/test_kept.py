"""Values that functions keep between calls in ways that their text does not show."""

import pytest
from shaping_fakes import FakeTask, shaping

from envcoder_bench.compile.trace import trace

KEEPING = {
    "argument": """
class Buffers: pass
BUFFERS = Buffers()
def rate(buffers, x):
    last = getattr(buffers, "last", torch.zeros_like(x))
    buffers.last = x.clone()
    return (x - last).sum(dim=1)
def compute_reward(dof_pos):
    return rate(BUFFERS, dof_pos)
""",
    "counter in an argument": """
class Buffers: pass
BUFFERS = Buffers()
BUFFERS.calls = 0
def weight(buffers):
    buffers.calls += 1
    return 1.0 if buffers.calls < 40 else 5.0
def compute_reward(dof_pos):
    return weight(BUFFERS) * dof_pos[:, 0]
""",
    "function's attribute": """
def compute_reward(dof_pos):
    own = compute_reward
    own.calls = getattr(own, "calls", 0) + 1
    return dof_pos[:, 0] * own.calls
""",
    "vars of a function": """
def compute_reward(dof_pos):
    vars(compute_reward)["calls"] = vars(compute_reward).get("calls", 0) + 1
    return dof_pos[:, 0]
""",
    "array under a local name": """
COUNT = np.zeros(1)
def compute_reward(dof_pos):
    count = COUNT
    count += 1
    return dof_pos[:, 0] * float(count[0])
""",
    "tensor of a class under a local name": """
class Settings:
    count = torch.zeros(1)
def compute_reward(dof_pos):
    count = Settings.count
    count += 1
    return dof_pos[:, 0] * count
""",
    "numbers of a tensor": """
COUNT = torch.zeros(1)
def compute_reward(dof_pos):
    count = COUNT.numpy()
    count += 1
    return dof_pos[:, 0] * COUNT
""",
    "class of an object": """
class Reward:
    calls = 0
    def __call__(self, x):
        kind = type(self)
        kind.calls += 1
        return x[:, 0] * kind.calls
OWN = Reward()
def compute_reward(dof_pos):
    return OWN(dof_pos)
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
ORDINARY = {
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
    "a key whose repr fails": """
class Key:
    def __repr__(self):
        raise RuntimeError("no name")
TABLE = {Key(): 1.0}
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


@pytest.mark.filterwarnings("ignore:an ordinary warning")
@pytest.mark.parametrize("code", ORDINARY.values(), ids=ORDINARY)
def test_constants_and_local_values_are_not_kept(code):
    assert shaping(code).functions["reward"].stateful_line is None


def test_large_modules_are_compared_in_part():
    code = "TABLE = list(range(100_000))\ndef compute_reward(dof_pos):\n    return dof_pos[:, 0] * TABLE[1]\n"
    assert shaping(code).functions["reward"].stateful_line is None
