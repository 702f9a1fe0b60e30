"""The log file of a run, and muted messages."""

import logging
import os
import threading
import warnings
from pathlib import Path

import pytest

from envcoder_bench.core import run_log as run_log_module
from envcoder_bench.core.errors import UserError
from envcoder_bench.core.run_log import Prints, counted_prints, is_muted, log_path, muted, note, printer, run_log

log = logging.getLogger("envcoder_bench.some.module")


def lines(folder):
    return [line.split(" ", 2)[2] for line in (folder / "run.log").read_text("utf-8").splitlines()]


def test_log_has_messages_from_before_the_folder_existed(tmp_path):
    with run_log() as messages:
        log.warning("a.py:1: slow")
        assert log_path() is None
        messages.open(tmp_path)
        log.info("begins")
        log.debug("too much")
        note("a table")
        logging.getLogger("py.warnings").warning("from Python\n")
        logging.getLogger("elsewhere").warning("not ours")
        assert log_path() == tmp_path / "run.log"
        assert lines(tmp_path) == ["a.py:1: slow", "begins", "a table", "from Python"]  # before it is closed
    log.warning("after it")
    note("after it")
    assert len(lines(tmp_path)) == 4 and log_path() is None
    with run_log() as messages:  # a resumed run goes on in it
        messages.open(tmp_path)
        log.info("again")
    assert lines(tmp_path)[4:] == ["again"]


def test_log_ends_with_the_error_of_the_run(tmp_path):
    for error, told in ((UserError("bad input"), "bad input"), (KeyboardInterrupt(), "KeyboardInterrupt")):
        with pytest.raises(type(error)), run_log() as messages:
            messages.open(tmp_path)
            raise error
        assert lines(tmp_path)[-1] == told
    with pytest.raises(ZeroDivisionError), run_log() as messages:
        messages.open(tmp_path)
        _ = 1 / 0
    assert (
        "Traceback" in (tmp_path / "run.log").read_text() and "ZeroDivisionError" in (tmp_path / "run.log").read_text()
    )


def test_run_log_restores_the_loggers(tmp_path):
    package = logging.getLogger("envcoder_bench")
    before = (package.level, list(package.handlers), list(logging.getLogger("py.warnings").handlers))
    with run_log(), run_log() as messages:
        messages.open(tmp_path)
    assert before == (package.level, package.handlers, logging.getLogger("py.warnings").handlers)


def test_concurrent_runs_have_separate_logs(tmp_path):
    barrier = threading.Barrier(2, timeout=60)

    def run(name):
        folder = tmp_path / name
        folder.mkdir()
        with run_log() as messages:
            messages.open(folder)
            barrier.wait()
            log.info("this is %s", name)
            barrier.wait()

    threads = [threading.Thread(target=run, args=(name,)) for name in ("one", "other")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lines(tmp_path / "one") == ["this is one"] and lines(tmp_path / "other") == ["this is other"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_full_disk_ends_the_log_but_not_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(run_log_module, "no_links", lambda path, flags: os.open("/dev/full", flags))
    with run_log() as messages:
        log.info("before")
        messages.open(tmp_path)
        log.info("goes on")
        note("goes on")


def test_unwritable_folder_ends_the_log_but_not_the_run(tmp_path):
    with run_log() as messages:
        messages.open(tmp_path / "nowhere")
        log.info("goes on")


def test_muted_applies_only_to_its_thread():
    seen = []
    with muted():
        assert is_muted()
        thread = threading.Thread(target=lambda: seen.append(is_muted()))
        thread.start()
        thread.join()
    assert seen == [False] and not is_muted()


def test_warnings_are_shown_again_after_muted():
    def warns():
        warnings.warn("slow", RuntimeWarning, stacklevel=1)

    with pytest.warns(RuntimeWarning) as told:
        with muted():
            warns()
        warns()
    assert len(told) == 1


def test_package_prints_no_messages_without_a_handler(capfd):
    logging.getLogger("envcoder_bench.somewhere").warning("hello")
    assert capfd.readouterr() == ("", "")


def test_prints_are_counted_by_line_and_end(monkeypatch):
    monkeypatch.setattr("envcoder_bench.core.run_log.MOST_LOGGED", 3)
    shown, kept = [], []
    prints = Prints(shown.append, kept.append)
    with counted_prints(prints):
        show = printer("a")
        show("\n".join(f"line {k}" for k in range(19)))
        show("x" * 1000, end="")
        show("2\n1", "and")
        for _ in range(100):
            show("again")
        printer("b")("another", "file")
    first, *rest = shown
    assert first.count("\n") == 18
    assert rest == [f"a prints: {'x' * 497}...", "a prints more, which is in run.log", "b prints: another file"]
    assert kept == ["a prints: 2\na prints: 1 and", "a prints: again", "a prints more, which is left out"]


def test_no_text_of_a_candidate_begins_as_a_message_of_the_run_does(tmp_path, capsys):
    false = "2026-01-01 00:00:00 a.py:1: in f: x: it is not compiled, and runs more slowly"
    with run_log() as messages:
        messages.open(tmp_path)
        log.warning("b.py:1: %s", f"says\n{false}\x1b[2J")
        note(f"a table\n{false}")
        for _ in range(30):
            printer("chatty")(f"x\n{false}\x1b[2J")
        with pytest.raises(ValueError), run_log() as inner:
            inner.open(tmp_path)
            raise ValueError(f"x\n{false}\x1b[2J")
    text = (tmp_path / "run.log").read_text("utf-8")
    assert false in text and f"\n{false}" not in text and "\x1b" not in text
    assert "\x1b" not in (shown := capsys.readouterr().out) and set(shown.splitlines()) == {
        "chatty prints: x", f"chatty prints: {false}\\u001b[2J", "chatty prints more, which is in run.log",
    }  # fmt: skip
