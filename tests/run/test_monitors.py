"""Messages on the physics: once for each candidate and warning."""

from envcoder_bench.run.train.monitors import MAX_WARNINGS, PhysicsMonitor

NAMES = ["a", "a", "b", "c"]  # two seeds of the first


def test_no_messages_without_problems():
    monitor = PhysicsMonitor(NAMES)
    assert monitor.lines([0] * 4, [0, 5, 0, 0], {}) == [] == monitor.final_lines()


def test_dropped_contacts_are_reported_once_per_candidate():
    monitor = PhysicsMonitor(NAMES)
    (line,) = monitor.lines([0, 3, 0, 0], [0] * 4, {})
    assert line.startswith("the simulation dropped contacts of a for lack") and "do not trust" in line
    assert monitor.lines([1, 4, 0, 0], [0] * 4, {}) == []
    (line,) = monitor.lines([1, 4, 0, 1], [0] * 4, {})
    assert line.startswith("the simulation dropped contacts of c for lack")


def test_warnings_are_reported_first_and_in_total():
    monitor = PhysicsMonitor(NAMES)
    (line,) = monitor.lines([0] * 4, [1, 2, 0, 9], {"odd": 1})
    assert line == "MuJoCo warned 1 time so far: odd; physics blow-ups: c 9 and a 3"
    assert monitor.lines([0] * 4, [1, 2, 0, 9], {"odd": 70}) == []
    assert monitor.final_lines() == ["MuJoCo warned 70 times in all: odd; physics blow-ups: c 9 and a 3"]
    assert monitor.final_lines() == []


def test_number_of_different_warnings_is_limited():
    monitor = PhysicsMonitor(["a"])
    said = [line for k in range(50) for line in monitor.lines([0], [0], {f"odd {i}": 1 for i in range(k)})]
    assert len(said) == MAX_WARNINGS and monitor.final_lines() == []
