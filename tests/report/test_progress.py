import io
import os
import shutil

from helpers import instructions

from envcoder_bench.core.words import duration, si
from envcoder_bench.report.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_progress_without_a_terminal_prints_lines():
    out, clock = io.StringIO(), Clock()
    progress = Progress(100, 40, out, clock)
    for iteration in range(41, 101):
        clock.now += 0.5
        progress.update(iteration, iteration * 1000, ("001", 0.25) if iteration == 50 else None)
    progress.close()
    assert out.getvalue().splitlines() == [
        "iteration 60/100, 2.00k env-steps/s, 0:20 left, best 0.250 001",
        "iteration 80/100, 2.00k env-steps/s, 0:10 left, best 0.250 001",
        "iteration 100/100, 2.00k env-steps/s, 0:00 left, best 0.250 001",
    ]


def test_a_long_run_has_some_ten_lines():
    """A pipe keeps them all: an agent reads them, and a log is read later."""
    out, clock = io.StringIO(), Clock()
    progress = Progress(5000, 0, out, clock, wave=1, waves=2)
    for iteration in range(1, 5001):
        clock.now += 1.0
        progress.update(iteration, iteration * 1000)
    assert 5 <= len(out.getvalue().splitlines()) <= 8  # of the first of two waves


def test_remaining_time_includes_later_waves():
    out, clock = io.StringIO(), Clock()
    progress = Progress(100, 0, out, clock, wave=2, waves=3)
    for iteration in range(1, 101):
        clock.now += 0.5
        progress.update(iteration, iteration * 1000)
    progress.close()
    lines = out.getvalue().splitlines()
    assert lines[0] == "wave 2 of 3, iteration 20/100, 2.00k env-steps/s, 1:30 left"
    assert lines[-1] == "wave 2 of 3, iteration 100/100, 2.00k env-steps/s, 0:50 left"


def test_speed_is_smoothed():
    out, clock = io.StringIO(), Clock()
    progress = Progress(300, 0, out, clock)
    steps = 0
    for iteration in range(1, 301):
        clock.now += 1.0
        steps += 1000 if iteration <= 100 else 3000
        progress.update(iteration, steps)
    speeds = [line.split(", ")[1] for line in out.getvalue().splitlines()]
    assert speeds[3] == "1.00k env-steps/s" and speeds[-1] == "3.00k env-steps/s"
    assert "1.00k" < speeds[4] < speeds[5] < "3.00k"


def test_progress_on_a_terminal_draws_a_bar(monkeypatch):
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((80, 24)))
    out, clock = Terminal(), Clock()
    progress = Progress(10, 0, out, clock)
    for iteration in range(1, 6):
        clock.now += 1.0
        progress.update(iteration, iteration * 1_500_000, ("a_candidate_with_a_long_name", 0.5))
    progress.close()
    drawn = out.getvalue().replace("\n", "\r").split("\r")
    last = drawn[-2]
    assert last.startswith("iteration 5/10 |####    |")
    assert last.endswith("| 1.50M env-steps/s, 0:05 left, best 0.500 a_cand…_name") and len(last) < 80


def test_update_is_cheap():
    """It is called in every iteration and draws ten times a second."""
    progress = Progress(10**9, 0, io.StringIO(), clock=Clock())
    progress.update(1, 1, ("a", 0.5))
    assert instructions(progress.update, 2, 2, ("a", 0.5)) < 100


def test_close_shows_the_last_iteration():
    out, clock = io.StringIO(), Clock()
    Progress(10, 0, out).close()
    assert out.getvalue() == "", "there was none"
    progress = Progress(100, 0, out, clock)
    progress.update(1, 10)
    clock.now = 2.0
    progress.update(3, 30)
    progress.close()
    assert out.getvalue() == "iteration 3/100, 10 env-steps/s, 1:37 left\n"


def test_numbers_and_times_are_short():
    numbers = (0, 999.4, 999.6, 12_345, 999_600, 123.4e6, 2.5e9)
    assert [si(x) for x in numbers] == ["0", "999", "1.00k", "12.3k", "1.00M", "123M", "2.50G"]
    assert [duration(x) for x in (0, 59.6, 3599, 7325)] == ["0:00", "1:00", "59:59", "2:02:05"]
