"""Repeated warnings are on one line; the order of messages is kept."""

import logging
import threading
from pathlib import Path

import pytest

from envcoder_bench.core.run_log import RepeatHandler, flush_messages, join_repeats, kind, muted

MEMORY = "{}.py:{}: in compute_reward: keeps values between calls, which --resume cannot restore"


@pytest.fixture
def shown():
    """What is shown so far, of a logger of the package."""
    texts = []
    handler = RepeatHandler(texts.append)
    package = logging.getLogger("envcoder_bench")
    level = package.level
    package.addHandler(handler)
    package.setLevel(logging.INFO)
    yield texts
    package.removeHandler(handler)
    package.setLevel(level)


log = logging.getLogger("envcoder_bench.some.module")


def test_repeated_messages_are_grouped_with_count_and_three_places(shown):
    for i, name in enumerate("abcde"):
        log.warning("%s: keeps values", f"{name}.py:{i}")
        log.warning(f"candidate {name} cannot be evaluated: {name}.py:7: syntax error at 'def {name}('")
    log.warning("z.py:1: in compute_goal: something else")
    assert shown == []
    flush_messages()
    assert shown == [
        "a.py:0: keeps values (5 times; also b.py:1, c.py:2 and 2 more)",
        "candidate a cannot be evaluated: a.py:7: syntax error at 'def a(' (5 times; also b.py:7, c.py:7 and 2 more)",
        "z.py:1: in compute_goal: something else",
    ]
    flush_messages()
    assert len(shown) == 3


def test_message_order_is_kept(shown):
    log.warning("x.py:1: slow")
    log.warning("y.py:1: slow")
    log.info("plan")
    log.warning("x.py:1: slow")
    assert shown == ["x.py:1: slow (2 times; also y.py:1)", "plan"]
    flush_messages()
    assert shown[2:] == ["x.py:1: slow"]


def test_messages_of_other_threads_are_shown_at_once(shown):
    log.warning("waits")
    thread = threading.Thread(target=log.warning, args=("x.py:3: still loading this file after 10 s",))
    thread.start()
    thread.join()
    assert shown == ["x.py:3: still loading this file after 10 s"]


def test_muted_messages_are_not_shown(shown):
    with muted():
        log.warning("nothing")
        log.info("nothing")
    flush_messages()
    assert shown == []


@pytest.mark.parametrize(
    "one, other, same",
    [
        (MEMORY.format("a", 1), MEMORY.format("/x y/b", 22), True),
        ("a.py:1: has 'x' in 3 of 5 values", "b.py:9: has 'yy' in 12 of 5.5e3 values", True),
        ("candidate a (seed 0) failed: a.py:1: boom", "candidate b (seed 1) failed: b.py:1: boom", True),
        ("a.py:1: one reason", "a.py:1: another reason", False),
        ("C:/a.py:1: in compute_goal: x", "b.py:1: in compute_reward: x", True),
    ],
)
def test_messages_are_of_one_kind_if_they_differ_in_names_and_numbers(one, other, same):
    assert (kind(one) == kind(other)) is same


def test_run_log_is_mentioned_if_it_has_more(tmp_path):
    texts = [f"{name}.py:1: slow" for name in "abcd"]
    log = Path("run.log")
    assert join_repeats(texts[:1], log) == "a.py:1: slow"
    assert join_repeats(texts[:3], log) == "a.py:1: slow (3 times; also b.py:1, c.py:1)"
    assert join_repeats(texts, log) == "a.py:1: slow (4 times; also b.py:1, c.py:1 and 1 more; all in run.log)"
    assert join_repeats(["blew up in 3", "blew up in 4"], log) == "blew up in 3 (2 times; all in run.log)"
    assert join_repeats(["blew up"] * 2) == "blew up (2 times)"
