"""Extraction of the candidate from replies."""

import signal
import time

import pytest

from envcoder_bench.search.providers.base import Reply
from envcoder_bench.search.providers.code import MAX_CHARS, extract_code
from envcoder_bench.search.providers.complete import no_code
from envcoder_bench.shaping.source import reduced, without_script

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
        (fence('rewards = {\n    "up": 2.0,\n}'), ['rewards = {\n    "up": 2.0,\n}']),
        (f"{fence('events={}')}\n{fence(TERMINAL)}\n{fence('x = 1')}", ["events={}", TERMINAL]),
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
        # names in texts, and local names, are not needed
        (f"{fence('x = state_dict = 1')}\n{fence(REWARD)}", [REWARD]),
        (f"{fence(HELPER)}\n{fence(REWARD + chr(10) + '    # helper(x)')}", [REWARD + "\n    # helper(x)"]),
        # code that does not parse is a candidate, which its check refuses with the line
        (f"{fence(SCALE)}\n{fence('def compute_reward(x:')}", ["def compute_reward(x:"]),
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


SIZE = 16_000
UNITS = {  # repeated, they are what a pattern that can match in two ways never comes to an end of
    "a quote and escapes": "'\\a", "double quotes": '"\\a', "triple quotes": '"""\\', "backslashes": "\\",
    "spaces": " ", "line ends": "\n", "lines of spaces": "     \n", "CRLF": "\r\n", "tabs": "\t", "zeros": "\0",
    "fences": "```\n", "unterminated blocks": "```python\n", "blocks": "```python\nx = y\n```\n", "ticks": "`",
    "tildes": "~", "nested fences": "```python\n````markdown\n```\n", "longer ends": "````a\n```\n",
    "thoughts without end": "<think>", "thoughts": "<thinking>a</think>", "one line of heads": "def compute_a(",
    "heads": "def a(\n", "heads with an end": "def a(\n)", "imports": "import a, ", "from": "from a ", "colons": "x:",
    "equals": "=", "one name": "a", "commas": " a, b", "annotations": "    a: b\n", "brackets": "(", "comments": "#\n",
}  # fmt: skip
USES_CHAIN = "```python\ndef compute_reward(x):\n    return n0\n```\n"
BLOCK = "```python\ndef compute_reward(x):\n    return x\n"


def bombs(size):
    for name, unit in UNITS.items():
        text = (unit * (size // len(unit) + 1))[:size]
        yield name, text
        yield f"{name}, in a block", f"{BLOCK}    {text}"
        yield f"{name}, after a block", f"{BLOCK}```\n{text}"
    chain = [f"```python\nn{k} = n{k + 1}\n```\n" for k in range(size // 16)]  # each block needs the next one
    yield "tildes and a tick", "~" * size + "`"
    yield "spaces and a name", f"{BLOCK}    {' ' * size}a\n```"
    yield "sixty escapes", f"{BLOCK}    y = '" + "\\a" * 60
    yield "a chain of helpers", USES_CHAIN + "".join(chain)
    yield "a chain of helpers, backwards", USES_CHAIN + "".join(reversed(chain))


def read(text):
    """Read it in all ways, and return the seconds of processor time."""
    began = time.process_time()
    for cut_off in (False, True):
        extract_code(text, cut_off)
    reduced(f"def compute_goal(x): pass\ndef compute_reward(x):\n    return x\n{text}", ["compute_reward"])
    reduced(f"def compute_goal(x): pass\nx = {text}", ["compute_reward"])
    without_script(text)
    return time.process_time() - began


@pytest.mark.slow
def test_any_text_is_read_in_linear_time():
    """A text of four times the length takes four times as long; in quadratic time it takes sixteen times."""

    def late(*_):
        raise TimeoutError(name)

    handler = signal.signal(signal.SIGVTALRM, late)
    try:
        for (name, short), (_, long) in zip(bombs(SIZE // 4), bombs(SIZE)):
            signal.setitimer(signal.ITIMER_VIRTUAL, 5.0)  # in exponential time it does not end
            seconds = read(short)
            assert read(long) < 8.0 * seconds + 0.05, name
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, handler)


def test_too_long_reply_is_ignored():
    code = fence(REWARD)
    whole = "x" * (MAX_CHARS - len(code) - 1) + "\n" + code
    assert len(whole) == MAX_CHARS and extract_code(whole) == REWARD + "\n"
    assert extract_code(whole + "\n") is None
    assert no_code(Reply(whole)) == ""
    assert no_code(Reply(whole + "\n")) == "the reply has 100,001 characters, more than 100,000"
