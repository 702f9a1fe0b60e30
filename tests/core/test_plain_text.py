"""Texts of others on a terminal: what it does not show, it must not do."""

import io
import pickle
from pathlib import Path

import pytest

from envcoder_bench.cli.command_line import BestEffort, VisibleText, command
from envcoder_bench.core.errors import MachineError, Stopped, UnknownKey, UserError
from envcoder_bench.core.plain_text import one_line, own_codes, visible


@pytest.mark.parametrize("text", ["", "plain", "± é → 日本 🤖", "a\tb\nc", "\u00a0\u3000"])
def test_text_that_is_seen_stays(text):
    assert visible(text) == text and one_line(text) == text.replace("\t", " ").replace("\n", " ")


def test_every_other_character_is_a_code():
    hidden = [chr(k) for k in range(0x20) if chr(k) not in "\n\t"] + [chr(k) for k in range(0x7F, 0xA0)]
    hidden += ["\u202e", "\u2066", "\u200b", "\u2028", "\ue000", "\ud800", "\U000e0001", "\ufeff"]
    for char in hidden:
        assert visible(f"a{char}b").isprintable() and visible(f"a{char}b") != f"a{char}b"
    assert visible("\x1b[2J\u202e\U000e0001") == r"\u001b[2J\u202e\U000e0001"


def test_one_line_has_no_breaks_and_a_length():
    breaks = ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\t"]
    for x in breaks:
        assert one_line(f"a{x}b") == "a b"
    assert one_line("a\n\n  b\n") == "a b" and one_line("a  b") == "a  b"  # as in the name of a folder
    assert one_line("x" * 50, 10) == "xxxxxxx..." and len(one_line("\x1b" * 50, 10)) == 10
    assert one_line("\n" * 10**6 + " " * 10**6) == ""


def test_standard_streams_of_a_command_show_codes_of_others_and_write_those_of_the_program():
    inner = io.StringIO()
    stream = VisibleText(BestEffort(inner))
    print("a\x1b[2Jb", "\x1b[31mred\x1b[0m", "x\r\ny\rz", file=stream)
    assert inner.getvalue() == "a\\u001b[2Jb red x\ny\nz\n"
    print("\x1b[1mbold\x1b[0m", file=own_codes(stream))
    assert inner.getvalue().endswith("\x1b[1mbold\x1b[0m\n")
    assert own_codes(inner) is inner


def test_errors_of_users_are_pickled_with_what_they_hold():
    raised = UserError("bad", advice="mend it", file=Path("f"))
    for error in (raised, UnknownKey("k", "m"), MachineError("m", Path("d")), Stopped("m", None)):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_error_of_a_command_is_one_visible_line(capsys):
    def fails(words):
        print("out\x1b[2J")
        raise KeyboardInterrupt("stopped\n1  hacked  0.9\x1b[2J")

    assert command("name", fails, []) == 130
    assert capsys.readouterr() == ("out\\u001b[2J\n", "name: stopped 1  hacked  0.9\\u001b[2J\n")
