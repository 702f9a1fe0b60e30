"""Extraction of the candidate from replies."""

import random
import resource
import subprocess
import sys
import textwrap

import code_by_patterns
import pytest

from envcoder_bench.core.folders import project_folder
from envcoder_bench.search.providers.base import Reply
from envcoder_bench.search.providers.code import MAX_CHARS, extract_code
from envcoder_bench.search.providers.complete import no_code

REWARD = "def compute_reward(state_dict):\n    return state_dict['x']"
TERMINAL = "def compute_terminal(state_dict):\n    return helper(state_dict['x']) < 0"
HELPER = "def helper(x):\n    return x * SCALE"
SCALE = "SCALE: float = 2.0"
IMPORT = "import torch.nn.functional as F"
USES_F = "def compute_reward(state_dict):\n    return F.relu(state_dict['x'])"


def fence(code, language="python"):
    return f"```{language}\n{code}\n```"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"Here it is:\n\n{fence(REWARD)}\nIt runs fast.", [REWARD]),
        (fence(REWARD, ""), [REWARD]),
        (fence(REWARD, "py"), [REWARD]),
        (fence(REWARD, "Python"), [REWARD]),
        (fence(REWARD, " python title=reward.py"), [REWARD]),
        (fence(REWARD, "{.python}"), [REWARD]),
        (f"~~~python\n{REWARD}\n~~~", [REWARD]),
        (f"````python\n{REWARD}\n````", [REWARD]),
        (fence(REWARD).replace("\n", "\r\n"), [REWARD]),
        (
            f"1. first\n   ```python\n   {REWARD.splitlines()[0]}\n       return 1\n   ```",
            ["def compute_reward(state_dict):\n    return 1"],
        ),
        # several blocks: one for each function, with what they need, in order
        (
            f"{fence(REWARD)}\nand\n{fence(SCALE)}\n{fence(HELPER)}\n{fence(TERMINAL)}",
            [REWARD, SCALE, HELPER, TERMINAL],
        ),
        (f"{fence(TERMINAL)}\nwith\n{fence(HELPER)}\n{fence(SCALE)}", [TERMINAL, HELPER, SCALE]),
        (f"{fence(IMPORT)}\n{fence(USES_F)}", [IMPORT, USES_F]),
        # what is not needed stays out
        (f"{fence('x = 1')}\n{fence(REWARD)}\n{fence('print(compute_reward(state))')}", [REWARD]),
        (f"{fence('pip install torch', 'bash')}\n{fence(REWARD)}\n{fence('{}', 'json')}", [REWARD]),
        # a later version of a function takes the place of an earlier
        (f"{fence(REWARD)}\nBetter:\n{fence(REWARD + ' * 2')}", [REWARD + " * 2"]),
        (f"{fence(REWARD + chr(10) + HELPER)}\n{fence(SCALE)}\n{fence(REWARD + ' * 2')}", [REWARD + " * 2"]),
        # an end that was forgotten
        (f"```python\n{REWARD}", [REWARD]),
        (f"```python\n{REWARD}\n```python\n{IMPORT}\n```", [REWARD]),
        # thoughts are no code
        (f"<think>maybe {fence(TERMINAL)}</think>{fence(REWARD)}", [REWARD]),
        # no fence at all
        (REWARD, [REWARD]),
        (f"Sure! Here you go.\n\n{SCALE}\n\n{REWARD}\n\nThis rewards x.", [f"{SCALE}\n\n{REWARD}"]),
    ],
)
def test_code_is_found(text, expected):
    assert extract_code(text) == "\n\n".join(expected) + "\n"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I cannot help with that.",
        "Use compute_reward(state_dict) as before.",
        fence("def reward(state_dict):\n    return 1"),
        fence("class A:\n    def compute_reward(self): ..."),
        fence(REWARD, "json"),
        f"<think>{fence(REWARD)}",
    ],
)
def test_text_without_code_gives_none(text):
    assert extract_code(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"```python\n{REWARD}", None),
        (REWARD, None),
        (f"{fence(REWARD)}\nIt rewards", REWARD),
        (f"{fence(REWARD)}\n```python\n{HELPER}", REWARD),
    ],
)
def test_only_complete_blocks_of_truncated_replies_count(text, expected):
    assert extract_code(text, cut_off=True) == (None if expected is None else expected + "\n")


@pytest.mark.slow
def test_unusual_texts_are_processed():
    for text in (
        "`" * 100_000,
        "```\n" * 50_000,
        "<think>" * 30_000,
        "def compute_a(" * 30_000,
        "import a, " * 30_000,
        "x:" * 50_000,
    ):
        extract_code(text)
        extract_code("```python\ndef compute_a():\n" + text)


# well-formed pieces of blocks; some need others, and some define what others do
PIECES = """
import torch
---
import torch.nn.functional as F
---
from envcoder_bench.torch_utils import quat_rotate, quat_mul as qm
---
SCALE: float = 2.0  # it's one
---
LIMIT = 0.3
WEIGHT = -LIMIT
---
def helper(x):
    return x * SCALE
---
def helper(x, scale=(1, 2), *, other=3):
    "It\\'s \"one\" more, # no text."
    return qm(x) * WEIGHT
---
@torch.jit.script
def bounded(
    x,
    most=LIMIT,
):
    \"\"\"Up
    to it, don't.\"\"\"
    return F.relu(x)
---
def compute_reward(state_dict):
    x: Tensor = state_dict['x']  # don't
    a, b = helper(x), x == SCALE
    return a
---
def compute_reward(x):
    total = bounded(x)
    for k in range(3): total += WEIGHT
    return total, {'a#b': x}
---
def compute_terminal(pos): return pos < LIMIT
---
def compute_observation(state_dict):
	y = f"{SCALE}"
	if state_dict: z = qm(y)
	return F.elu(y)
---
class Weights:
    a = b = 'one'

    def compute_reward(self): ...
"""
PROSE = ["", "Here it is:", "- it's 'bold'", "<think>or not</think>", '1. `x` grows; 2. "stop"', "> cos(0) == 1"]
OPENINGS = ["```", "```python", "```py", "``` python", "````python", "~~~python", "   ```python", "```bash", "```{.py}"]


def ordinary_reply(rng):
    """Prose and blocks of well-formed Python; the last block may lack its end."""
    parts, end = [], ""
    for _ in range(rng.randrange(1, 9)):
        block = "\n\n\n".join(rng.sample(PIECES.strip().split("\n---\n"), rng.randrange(1, 4)))
        opening = rng.choice(OPENINGS) if rng.random() < 0.9 else ""
        indent = opening[: len(opening) - len(opening.lstrip())]
        end = indent + opening.strip()[: 4 if "````" in opening else 3]
        parts += [rng.choice(PROSE), opening, textwrap.indent(block, indent), end]
    lines = "\n".join(parts[:-1] if rng.random() < 0.2 else [*parts, rng.choice(PROSE)]).split("\n")
    return rng.choice(["\n", "\r\n"]).join(lines)


@pytest.mark.parametrize("seed", range(20))
def test_common_replies_agree_with_patterns(seed):
    rng, found = random.Random(seed), 0
    for _ in range(100):
        text, cut_off = ordinary_reply(rng), rng.random() < 0.3
        code = extract_code(text, cut_off)
        assert code == code_by_patterns.extract_code(text, cut_off), text
        found += code is not None
    assert found > 30


SIZE = 200_000
UNITS = {  # repeated, they are what a pattern that can match in two ways never comes to an end of
    "a quote and escapes": "'\\a", "double quotes": '"\\a', "triple quotes": '"""\\', "backslashes": "\\",
    "spaces": " ", "line ends": "\n", "lines of spaces": "     \n", "CRLF": "\r\n", "tabs": "\t", "zeros": "\0",
    "fences": "```\n", "unterminated blocks": "```python\n", "blocks": "```python\nx = y\n```\n", "ticks": "`",
    "tildes": "~", "nested fences": "```python\n````markdown\n```\n", "longer ends": "````a\n```\n",
    "thoughts without end": "<think>", "thoughts": "<thinking>a</think>", "one line of heads": "def compute_a(",
    "heads": "def a(\n", "heads with an end": "def a(\n)", "imports": "import a, ", "from": "from a ", "colons": "x:",
    "equals": "=", "one name": "a", "commas": " a, b", "annotations": "    a: b\n", "brackets": "(", "comments": "#\n",
}  # fmt: skip
CHAIN = [f"```python\nn{k} = n{k + 1}\n```\n" for k in range(7000)]  # each block needs the next one
USES_CHAIN = "```python\ndef compute_reward(x):\n    return n0\n```\n"
BLOCK = "```python\ndef compute_reward(x):\n    return x\n"


def bombs():
    for name, unit in UNITS.items():
        text = (unit * (SIZE // len(unit) + 1))[:SIZE]
        yield name, text
        yield f"{name}, in a block", f"{BLOCK}    {text}"
        yield f"{name}, after a block", f"{BLOCK}```\n{text}"
    yield "tildes and a tick", "~" * SIZE + "`"
    yield "spaces and a name", f"{BLOCK}    {' ' * SIZE}a\n```"
    yield "sixty escapes", f"{BLOCK}    y = '" + "\\a" * 60
    yield "a chain of helpers", USES_CHAIN + "".join(CHAIN)
    yield "a chain of helpers, backwards", USES_CHAIN + "".join(reversed(CHAIN))


EXTRACT_ALL = """
import sys
sys.path[:0] = ["tests/search", "tests/fakes"]
from test_providers_code import bombs
from envcoder_bench.search.providers.code import extract_code
for name, text in bombs():
    for cut_off in (False, True):
        print(name, flush=True)
        extract_code(text, cut_off)
print("done")
"""


@pytest.mark.slow
def test_extraction_time_is_linear_in_the_length():
    """All together take 4 s of processor time; quadratic time exceeds the limit of 120 s."""

    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (120, 120))

    root = project_folder("user_functions").parent
    command = [sys.executable, "-c", EXTRACT_ALL]
    done = subprocess.run(command, cwd=root, preexec_fn=limit, stdout=subprocess.PIPE, text=True)
    assert done.stdout.endswith("done\n"), f"it ended in: {done.stdout.splitlines()[-1:]}"


def test_too_long_reply_is_ignored():
    code = fence(REWARD)
    whole = "x" * (MAX_CHARS - len(code) - 1) + "\n" + code
    assert len(whole) == MAX_CHARS and extract_code(whole) == REWARD + "\n"
    assert extract_code(whole + "\n") is None
    assert no_code(Reply(whole)) == ""
    assert no_code(Reply(whole + "\n")) == "the reply has 1,000,001 characters, more than 1,000,000"
