"""Candidate files whose texts try to leave their places: on a terminal, in a table, on a page, in a run's notes."""

import json
import re

ESCAPE = "\\x1b[2J\\x1b[31m\\x9b1A\\u202e"  # as Python writes it: clear the screen, red, a line up, from right to left
ROW = "1  hacked  0.999"
FALSE_ROW = f"\\n\\n#  candidate  fitness\\n{ROW}\\n"
SCRIPT = "<script>window.hacked=1</script>"
UNCOMPILED = "2026-01-01 00:00:00 human.py:1: in compute_reward: hacked: it is not compiled, and runs more slowly"
# what a terminal obeys, and what editors and pages hide
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def reward(before="", after="", name="'up'", extra=""):
    """A reward of two terms, of a file that can be swept by SWING."""
    return f"""
SWING = 0.1
def compute_reward(pole_angle, pole_vel, progress_buf):
    {before or "pass"}
    up, swing = torch.cos(pole_angle), -SWING * torch.abs(pole_vel)
    return up + swing, {{{name}: up, "swing": swing}}
{after}"""


def noted(**fields):
    """A comment that says of a file what it is a variant of."""
    return f"# variant: {json.dumps(fields)}\n"


PLAIN = reward()
GOOD = {"good": PLAIN}
# what a comment of a file says of it
NOTES = {
    "note_of_nothing": reward(after=noted(original="human", flag="--terms")),
    "note_of_a_term": reward(after=noted(original="good", flag="--terms", term="x\n" + ROW + "\x1b[2J", factor=0.5)),
    "note_of_a_function": reward(after=noted(original="good", flag="--terms", function="\x1b[31m" + SCRIPT)),
    "note_of_a_sweep": reward(
        after=noted(original="human", flag="--sweep", values={"train.x\x1b[2J": 1.0}, usual={"y": 2.0})
    ),
    "note_of_itself": reward(after=noted(original="note_of_itself", flag="--terms", term="up")),
}
# texts that come into messages while a file is loaded and checked, and in training; none of them is evaluated
FAILING = {
    "raises_at_load": f'raise ValueError("{ESCAPE}{FALSE_ROW}{SCRIPT}")\n',
    "raises_when_called": reward(before=f'raise ValueError("{ESCAPE}{FALSE_ROW}")'),
    "unknown_key": 'def compute_reward(state_dict):\n    return state_dict["\\x1b[2J\\n1  hacked  0.999"]\n',
    "syntax": f"def compute_reward(:  # \x1b[2J {SCRIPT}\n    '\x1b[31m'\n",
    "name_of_a_component": reward(name=f'"{ESCAPE}"'),
    "row_as_a_component": reward(name=f'"x{FALSE_ROW}"'),
    "shape": f'def compute_reward(pole_angle):\n    return pole_angle, {{"{SCRIPT}": torch.zeros(1, 2, 3)}}\n',
    "unknown_type": f'def compute_reward(pole_angle):\n    return type("{ESCAPE}", (), {{}})()\n',
}
TRAINING = {
    "page": reward(name=f'"{SCRIPT}"'),
    "formula": reward(name='"$x_{$"'),
}
# only of files that run as Python
TRUSTED = {
    "raises_in_training": reward(before=f'assert not (progress_buf > 3).any(), "{ESCAPE}{FALSE_ROW}"'),
    "prints": reward(before=f'print("{ESCAPE}{FALSE_ROW}{UNCOMPILED}")'),
    "warns": f'import warnings\nwarnings.warn("{ESCAPE}{FALSE_ROW}", stacklevel=1)\n{PLAIN}',
}
DOCUMENTED = {"documented": f'"""An idea.{ESCAPE} {SCRIPT}{FALSE_ROW}"""\n{PLAIN}'}
ALL = {**GOOD, **NOTES, **FAILING, **TRAINING, **DOCUMENTED}


def escapes(text):
    """Return the first control characters of what a terminal shows, or a page or a table has, with their places."""
    return [(match.start(), ascii(text[match.start() : match.start() + 20])) for match in CONTROLS.finditer(text)][:5]


def false_rows(text):
    """Return the lines that are the false row of FALSE_ROW alone."""
    return [line for line in text.splitlines() if line.strip().startswith(ROW)]
