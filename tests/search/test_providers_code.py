"""The candidate in a reply, as models write them."""

import pytest

from envcoder_bench.search.providers.code import extract_code

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
def test_there_may_be_none(text):
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
def test_of_a_reply_that_was_cut_off_only_whole_blocks_count(text, expected):
    assert extract_code(text, cut_off=True) == (None if expected is None else expected + "\n")


def test_odd_texts_take_no_time():
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
