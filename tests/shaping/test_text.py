"""Valid and misleading texts of candidates."""

import pytest

from envcoder_bench.shaping import text as text_module
from envcoder_bench.shaping.contract import Fault
from envcoder_bench.shaping.text import MAX_BYTES, definitions, misleading, unreadable


@pytest.mark.parametrize(
    "source",
    [
        "x = 1\n",
        "",
        "# -*- coding: utf-8 -*-\n",
        "# vim: set fileencoding=UTF8 :\n",
        "#!/usr/bin/env python\n# coding: us-ascii\n",
        "# -*- coding: latin-1 -*-\nx = 'a'\n",  # the same in UTF-8, as long as all of it is ASCII
        "# coding: cp1252\n",
        "# State encoding: base, joints\n",  # no encoding has this name
        "x = 'coding: rot13'\n",  # no comment
        "\n\n# coding: rot13\n",  # not in the first two lines
        "# " + "é" * (MAX_BYTES // 2 - 2) + "\n",
    ],
)
def test_readable_sources_are_accepted(source):
    assert unreadable(source) is None


@pytest.mark.parametrize(
    "name",
    ["rot13", "utf-7", "UTF_7", "utf-16", "punycode", "unicode_escape", "raw_unicode_escape", "idna", "hex", "cp037"],
)
@pytest.mark.parametrize(
    "line", ["# coding: {}", "# -*- coding: {} -*-", "x = 1\n# vim: fileencoding={}", "\n#coding={}"]
)
def test_other_encodings_are_refused_by_name(name, line):
    told = unreadable(line.format(name) + "\nx = 1\n")
    assert told.message.startswith(f"declares the encoding {name}")
    assert told.line == line.count("\n") + 1


def test_latin_1_is_refused_only_with_non_ascii_characters():
    assert unreadable("# coding: latin-1\nx = 'é'\n").line == 1


@pytest.mark.parametrize("source", ["x = 1\ny = '\ud800'\n", "x = 1\n# \udcff\n"])
def test_text_that_is_not_utf_8_is_refused_with_its_line(source):
    assert unreadable(source) == Fault("is not UTF-8 text from here on", line=2, remedy="save the file as UTF-8")


@pytest.mark.parametrize("source", ["x" * (MAX_BYTES + 1), "é" * (MAX_BYTES // 2 + 1), "\udcff" * (MAX_BYTES // 3 + 1)])
def test_large_texts_are_refused(source):
    assert "larger than 1 MiB" in unreadable(source).message


@pytest.mark.parametrize("source", ["#" * MAX_BYTES, "# " + "coding " * (MAX_BYTES // 8), "#coding:" + "a" * 900_000])
def test_reading_takes_linear_time(source):
    """With quadratic time these take minutes."""
    assert unreadable(source) is None and misleading(source) is None


@pytest.mark.parametrize(
    "character", ["\x00", "\x08", "\x0b", "\x1b", "\x7f", "\x85", "\u200e", "\u2028", "\u202e", "\u2066", "\r"]
)
def test_characters_that_hide_code_are_found(character):
    told = misleading(f"x = 1\ny = 2  # {character} z\n")
    assert told.line == 2 and told.message.startswith(f"has the character U+{ord(character):04X} (")


@pytest.mark.parametrize("source", ["x = 1\r\ny = 2\r\n", "x = 1\n\x0c\ty = 'ω → ² é ἀρχή 日本 👩\u200d💻'\n"])
def test_harmless_characters_pass(source):
    assert misleading(source) is None


def test_functions_of_hostile_texts_are_found_in_bounded_work(monkeypatch):
    """Code that nobody has read is parsed in the process of the run."""
    parses, usual = [], text_module.parse
    monkeypatch.setattr(text_module, "parse", lambda text: (parses.append(text), usual(text))[1])
    assert not definitions("@a\n" * 20_000).names and len(parses) <= 8
    good = "def compute_reward(a):\n    return a\n"
    chain = "if 0: pass\n" + "elif 0: pass\n" * 1500
    matched = "match 1:\n    case 1:\n        def compute_goal(a): return {}\n"
    assert [*definitions(good + chain + matched).names] == ["compute_reward", "compute_goal"]
    large = f"{good}#{'x' * 100_000}\n"  # a file that holds data
    assert definitions(large).names and not definitions(f"{large}@\n").names
