"""What stress.csv says of a candidate, against tables whose truth is known."""

import dataclasses
import hashlib

import numpy as np
import pytest

from envcoder_bench.results import stress_grid
from envcoder_bench.results.stress import Row, Settings, Stress, _p_value, read_stress, write_stress

GRID = stress_grid.stress_grid()
FULL = Settings(1, len(GRID.draws), GRID.episodes, 0, {"foot_slip": "no feet"}, ["a note"])


def stress(**fitness):
    """Return rows of candidates with two seeds; a candidate is the fitness by draw, the nominal one first."""
    rows = [
        Row(name, seed, draw, 16, float(x) + 0.001 * seed, float(x > 0.5), {"limit_margin": 0.25}, "knee" * (draw > 60))
        for name, values in fitness.items()
        for seed in (0, 1)
        for draw, x in enumerate(values)
    ]
    return Stress(FULL, tuple(rows))


def column(name):
    return GRID.column(name)


def test_version_1_is_frozen():
    assert hashlib.sha256(stress_grid.FILE.read_bytes()).hexdigest()[:16] == "29f7c600f9d114ff"
    assert GRID.version == 1 and GRID.draws.shape == (64, len(GRID.axes)) and GRID.episodes == 16


@pytest.mark.slow
def test_draws_are_sobol_s_and_cover_every_axis_evenly():
    from scipy.stats import qmc

    points = qmc.Sobol(len(GRID.axes), scramble=False).random(64) + 0.5 / 64
    low, high = (np.array([getattr(axis, end) for axis in GRID.axes]) for end in ("low", "high"))
    np.testing.assert_allclose(GRID.draws, low + (high - low) * points, atol=1e-6)
    assert all(len(np.unique(values)) == 64 for values in GRID.draws.T)


def test_p_values_are_those_of_welch():
    from scipy.stats import ttest_ind

    first, second = np.array([0.1, 0.5, 0.9, 0.2]), np.array([0.8, 0.7, 0.95, 0.9, 0.6])
    expected = ttest_ind(first, second, equal_var=False).pvalue
    assert _p_value(first, second) == pytest.approx(expected) and 0.05 < expected < 0.3


def test_a_small_spread_at_a_large_mean_is_a_spread():
    """The p-value is that of the same samples around 0; what differs by rounding alone does not differ."""
    noise = 1e-7 * np.random.default_rng(0).normal(size=(2, 12))
    assert _p_value(*(1000.0 + noise)) == pytest.approx(_p_value(*noise), rel=1e-3) and _p_value(*noise) > 0.05
    constant = np.full(4, 1000.0)
    assert _p_value(constant, constant + 1e-10) == 1.0 and _p_value(constant, constant + 1.0) == 0.0
    assert _p_value(0.0 * constant, 0.0 * constant + 1e-10) == 1.0


def test_numbers_are_those_of_the_draws():
    values = np.linspace(0.0, 1.0, 65)[::-1]
    (only,) = stress(a=values).summaries
    assert only.nominal == pytest.approx(1.0005) and only.mean[0] == pytest.approx(values[1:].mean() + 0.0005)
    assert only.worst_decile[0] == pytest.approx(np.quantile(values[1:], 0.1) + 0.0005)
    assert only.cvar[0] == pytest.approx(np.sort(values[1:])[:7].mean() + 0.0005)
    for mean, low, high in (only.mean, only.worst_decile, only.cvar):
        assert low < mean < high
    assert only.motion == {"limit_margin": 0.25} and only.new_contacts == ("knee",)


@pytest.mark.parametrize(
    "axis, breaks, wanted",
    [
        ("delay", lambda x: x >= 20.0, (20.0, 40.0)),
        ("friction", lambda x: x < 0.6, (0.3, 0.6)),
        ("slope", lambda x: x > 0.1, (0.1, 0.2)),
    ],
)
def test_the_axis_that_breaks_a_policy_is_named_with_its_range(axis, breaks, wanted):
    rng = np.random.default_rng(0)
    values = np.where(breaks(column(axis)), 0.2, 0.9) + rng.normal(0.0, 0.05, 65)
    found = stress(a=values).summaries[0].breaks
    assert found is not None and found.axis.name == axis and found.ended == 1.0
    assert (found.low, found.high) == pytest.approx(wanted)


def test_chance_and_small_losses_break_nothing():
    rng = np.random.default_rng(1)
    found = [each.breaks for k in range(40) for each in stress(a=0.8 + 0.1 * rng.standard_normal(65)).summaries]
    assert sum(breaks is not None for breaks in found) <= 2
    assert stress(a=0.9 - 0.02 * (column("delay") > 20.0)).summaries[0].breaks is None


def test_a_policy_that_ends_early_without_disturbances_is_said_to():
    (only,) = stress(a=np.full(65, 0.2)).summaries
    assert only.breaks is None and only.verdict == "ends early without disturbances"


def test_where_fitness_and_stress_disagree():
    late = column("delay") >= 20.0
    both = stress(a=np.where(late, 0.1, 1.0), b=np.full(65, 0.8))
    assert [each.candidate for each in both.summaries] == ["b", "a"]
    wanted = "a is first by fitness, but ends early in 100% of the episodes with delay of 20 to 40 ms; b in 0%"
    assert both.disagreement(["a", "b"]) == wanted and both.disagreement(["b", "a"]) == ""


def test_files_are_read_as_they_were_written(tmp_path):
    assert read_stress(tmp_path) is None
    written = stress(a=np.linspace(0.0, 1.0, 65))
    write_stress(tmp_path, written)
    assert read_stress(tmp_path) == dataclasses.replace(written, rows=tuple(written.rows))
    # of an earlier version, without the column
    rows = [row.split(",") for row in (tmp_path / "stress.csv").read_text().splitlines()]
    at = rows[0].index("physics")
    (tmp_path / "stress.csv").write_text("\n".join(",".join([*row[:at], *row[at + 1 :]]) for row in rows))
    assert read_stress(tmp_path) == dataclasses.replace(written, rows=tuple(written.rows))
    (tmp_path / "stress.csv").write_text("candidate\nx\n")
    with pytest.raises(ValueError, match="damaged"):
        read_stress(tmp_path)
