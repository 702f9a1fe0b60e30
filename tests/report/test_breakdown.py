"""Profiles as text and as JSON."""

import json
import re

import pytest

from envcoder_bench.core.profiling import EVALUATION, REST, RESULTS
from envcoder_bench.report.breakdown import BAR, LABELS, Breakdown, bar, render_breakdown, to_json

# two iterations of horizon 4: 20 s in all, of which 8 s are training
SECONDS = {"physics": 4.0, "reward": 0.5, "policy": 1.0, "update": 2.0, REST: 0.5, EVALUATION: 10.0, RESULTS: 2.0}


def breakdown(**changes):
    given = dict(
        device="cpu", groups=3, envs_per_group=10, horizon=4, first=3, last=4, seconds=SECONDS,
        counts={"physics": 8, EVALUATION: 2},
    )  # fmt: skip
    return Breakdown(**{**given, **changes})


def rows(text):
    """Return label and numbers of each line of the table."""
    found = {}
    for line in text.splitlines():
        match = re.match(r"(\S.*?\S)  +([\d.].*)", line)
        if match:
            found[match.group(1)] = [float(x) for x in re.findall(r"[\d.]+", match.group(2))]
    return found


def test_speed_excludes_evaluation():
    b = breakdown()
    assert b.env_steps_per_second == pytest.approx(3 * 10 * 4 * 2 / 8)
    assert b.physics_share == 0.5
    assert "50 % of the speed of its bare physics (60)" in render_breakdown(b)


def test_cuda_device_has_a_column_for_the_host():
    host = {"physics": 1.0, "update": 2.0, REST: 0.1}
    shown = rows(render_breakdown(breakdown(device="cuda:0", host_seconds=host)))
    assert shown["physics"] == [2000.0, 500.0, 500.0, 50.0]
    assert shown["training"] == [4000.0, 1000.0, 1550.0, 100.0]


@pytest.mark.parametrize("width", [80, 100, 120])
def test_lines_fit_the_width(width):
    everything = {name: 1.0 for name in (*LABELS, REST, EVALUATION, RESULTS)}
    text = render_breakdown(breakdown(seconds=everything, host_seconds=everything), width)
    assert max(map(len, text.splitlines())) <= width
    assert len(text.splitlines()) <= 40


def test_bar_length_is_proportional():
    assert bar(0.0) == ""
    assert bar(1.0) == bar(1.7) == "█" * BAR
    assert bar(1 / BAR) == "█"
    assert len({bar(k / (8 * BAR)) for k in range(8 * BAR + 1)}) == 8 * BAR + 1


def test_json_has_measured_and_derived_numbers():
    read = json.loads(to_json(breakdown()))
    parts = {part["part"]: part for part in read["parts"]}
    assert list(parts) == ["physics", "reward", "policy", "update", REST]
    assert sum(part["percent"] for part in parts.values()) == pytest.approx(100)
    assert parts["physics"]["ms_per_step"] == 500.0
    assert read["seconds"] == SECONDS


def test_notes_are_of_the_time_between_iterations_and_the_warm_up():
    text = render_breakdown(breakdown())
    assert "2 evaluations of 5000 ms" in text and "1000.0 ms per iteration for results" in text
    assert "warms up" not in text
    text = render_breakdown(breakdown(counts={}, warmed_up=False))
    assert "no evaluation" in text and "warms up" in text
