import struct
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from envcoder_bench.report import curves_plot, ranking_plot
from envcoder_bench.report.curves_plot import plot_learning_curves
from envcoder_bench.report.figures import BETTER, DARK, WORSE, renderer, spread
from envcoder_bench.report.ranking_plot import plot_ranking
from envcoder_bench.results.logs import CurveLog, read_curves
from envcoder_bench.results.ranking import rank
from envcoder_bench.results.rows import FAILED, Result
from envcoder_bench.shaping.contract import Fault

# what an earlier test of this process left open is not the picture's fault
NO_WARNINGS = pytest.mark.filterwarnings(
    "error", "default::ResourceWarning", "default::pytest.PytestUnraisableExceptionWarning"
)


def run(names, seeds, failed=0):
    """Return results and curves of invented candidates; the last ``failed`` stop after a third of the training."""
    results, rows = [], []
    for k, name in enumerate(names):
        fails = k >= len(names) - failed
        for seed in range(seeds):
            level = 0.9 - 0.7 * k / len(names) + 0.01 * seed + 0.002 * ((7 * k + 5 * seed) % 3)
            for i in range(1, 4 if fails else 10):
                rows.append((i, 1000 * i, name, seed, level * i / 10 if i % 3 == 0 else np.nan))
            fault = Fault(f"$ returned {'a long text ' * 20}", f"fns/{name}.py", 3, "compute_reward")
            row = (
                Result(name, seed, FAILED, fault=fault)
                if fails
                else Result(name, seed, "ok", level, level - 0.1, level + 0.1)
            )
            results.append(row)
    return rank(results), pd.DataFrame(rows, columns=["iteration", "env_steps", "candidate", "seed", "fitness"])


def draw(folder, ranked, curves):
    """Draw both pictures and return their sizes in pixels."""
    sizes = []
    for path in (
        plot_learning_curves(
            curves, ranked, folder / "learning_curves.png", "Anymal", "a meaning with $_{$ in it, 0 to 1"
        ),
        plot_ranking(ranked, folder / "ranking.png", "Anymal", "a meaning with $_{$ in it, 0 to 1"),
    ):
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG") and len(content) > 5000
        sizes.append(struct.unpack(">II", content[16:24]))
    return sizes


@pytest.mark.slow
@NO_WARNINGS
@pytest.mark.parametrize(
    "count, seeds, failed", [(1, 1, 0), (2, 1, 0), (2, 2, 1), (60, 2, 12)], ids=["1", "2", "failed", "60"]
)
def test_plots_have_expected_sizes(tmp_path, count, seeds, failed):
    names = ["human", "unshaped", *(f"{i:03d}_$_{{$_long_name_of_a_candidate" for i in range(58))][:count]
    curves, ranking = draw(tmp_path, *run(names, seeds, failed))
    assert curves == (1500, 900)
    assert ranking[0] == 1500 and ranking[1] < 3000


def test_spread_moves_labels_as_little_as_possible():
    assert spread([0.1, 0.5, 0.9], 0.1, 1.0) == pytest.approx([0.1, 0.5, 0.9])
    assert spread([0.5, 0.5, 0.5], 0.1, 1.0) == pytest.approx([0.4, 0.5, 0.6])
    assert spread([0.0, 0.0, 0.9], 0.1, 1.0) == pytest.approx([0.0, 0.1, 0.9])
    assert spread([0.95, 1.0, 1.0], 0.1, 1.0) == pytest.approx([0.8, 0.9, 1.0])
    assert spread([], 0.1, 1.0) == []
    wanted = np.sort(np.random.default_rng(0).random(12))
    assert np.diff(spread(wanted.tolist(), 0.05, 1.0)).min() >= 0.05 - 1e-12


def texts(figure):
    return " ".join(text.get_text() for text in figure.texts)


@pytest.fixture
def figures(monkeypatch):
    """Return the figures instead of saving them."""
    for module in (curves_plot, ranking_plot):
        monkeypatch.setattr(module, "save_figure", lambda figure, path: figure)


def test_clipped_intervals_end_in_arrows(figures):
    wide = [Result("human", 0, "ok", 0.5, 0.45, 0.55), Result("b", 0, "ok", 0.5, 0.45, 0.55)]
    wide.append(Result("a", 0, "ok", 0.6, -9.0, 9.0))
    figure = plot_ranking(rank(wide), "", "Anymal", "m")
    markers = [line.get_marker() for line in figure.axes[0].lines]
    assert markers.count("<") == markers.count(">") == 1
    assert "arrow: cut off" in texts(figure)
    figure = plot_ranking(rank(wide[:1]), "", "Anymal", "m")
    assert not {"<", ">"} & {line.get_marker() for line in figure.axes[0].lines}
    assert "arrow" not in texts(figure)


def test_bands_are_visible_or_noted_as_cut(figures):
    def curves(width):
        rows = [(i, i, name, seed, 0.1 * i + width * seed) for i in (1, 2) for name in ("a", "b") for seed in (0, 1)]
        return pd.DataFrame(rows, columns=["iteration", "env_steps", "candidate", "seed", "fitness"])

    ranked = rank([Result(name, seed, "ok", 0.2, 0.1, 0.3) for name in ("a", "b") for seed in (0, 1)])
    for width, cut in ((0.05, False), (100.0, True)):
        figure = plot_learning_curves(curves(width), ranked, "", "Anymal", "m")
        low, high = figure.axes[0].get_ylim()
        assert (low <= 0.1 and high >= 0.2 + width) == (not cut)
        assert ("bands that reach the frame are cut off" in texts(figure)) == cut


@pytest.mark.parametrize("scale", [1e-9, 1.0, -3e4, 1.234e7, 1e-4])
def test_axis_label_and_ticks_are_inside_the_figure(figures, scale):
    """Wide tick labels such as -30,000,000 must not push the axis label out of the figure."""
    ranked, curves = run(["human", "a", "b"], 2)
    curves["fitness"] *= scale
    curves["env_steps"] *= 1000
    figure = plot_learning_curves(curves, ranked, "", "Anymal", "m")
    box = figure.axes[0].yaxis.get_tightbbox(renderer(figure))
    assert 0.1 * figure.dpi < box.x0 < 0.4 * figure.dpi


def test_stopped_candidates_are_labelled_with_the_fitness_of_the_ranking(figures):
    """Their last point is of the beginning of an episode, the ranking's number of whole ones."""
    ranked, curves = run(["human", "a"], 2)
    ranked = [replace(row, stopped_at=3, fitness=0.123) if row.candidate == "a" else row for row in ranked]
    figure = plot_learning_curves(curves, ranked, "", "Anymal", "m", True)
    labels = [label.get_text() for label in figure.axes[0].texts]
    assert any(label.startswith("a  0.12") for label in labels), labels
    assert "last point: whole episodes, unless stopped" in texts(figure)
    assert "last point" not in texts(plot_learning_curves(curves, ranked, "", "Anymal", "m", False))
    one = curves[curves["iteration"] <= 3]
    assert "last point" not in texts(plot_learning_curves(one, ranked, "", "Anymal", "m", True))
    styles = {x.get_text().split()[0]: x.arrow_patch.get_linestyle() for x in figure.axes[0].texts if x.arrow_patch}
    assert styles["a"] == ":" and styles["human"] == "-"  # a full line would look like the curve going on


def test_colours_mark_significantly_different_candidates_only():
    untested, _ = run(["human", "unshaped", "a", "b"], seeds=1)
    colours = {row.candidate: ranking_plot._colour_and_marker(row)[0] for row in untested}
    assert colours["a"] == colours["b"] == DARK
    tested, _ = run(["a", "human", "b"], seeds=3)
    colours = {row.candidate: ranking_plot._colour_and_marker(row)[0] for row in tested}
    assert (colours["a"], colours["b"]) == (BETTER, WORSE)


def test_untrained_policy_is_a_dotted_line_in_both_pictures(figures):
    _, curves = run(["human", "a"], 2)
    fitness = {"human": 0.8, "a": 0.7, "untrained": 0.05}
    ranked = rank([Result(name, seed, "ok", x, x, x) for name, x in fitness.items() for seed in (0, 1)])
    axes = plot_learning_curves(curves, ranked, "", "Anymal", "m").axes[0]
    assert len([line for line in axes.lines if set(line.get_ydata()) == {0.05}]) == 1 and axes.get_ylim()[0] <= 0.05
    assert any("untrained (baseline)  0.050" in text.get_text() for text in axes.texts)
    axes = plot_ranking(ranked, "", "Anymal", "m").axes[0]
    assert any(list(line.get_xdata()) == [0.05, 0.05] and list(line.get_ydata()) == [0, 1] for line in axes.lines)
    assert "untrained (baseline)" in [label.get_text() for label in axes.get_yticklabels()]


@pytest.mark.slow
@NO_WARNINGS
def test_plots_with_one_point_or_none_are_drawn(tmp_path):
    ranked, curves = run(["a"], 1)
    draw(tmp_path, ranked, curves[curves["iteration"] <= 3])
    CurveLog(tmp_path / "curves.csv").close()
    empty = read_curves(tmp_path / "curves.csv")
    everyone_failed, _ = run(["human", "a", "b"], 2, 3)
    draw(tmp_path, everyone_failed, empty)
    draw(tmp_path, [], empty)


@pytest.mark.slow
def test_ranking_of_many_candidates_has_limited_height_and_none_that_was_skipped(figures):
    ranked, _ = run([*(f"c{i}" for i in range(998)), "human", "unshaped"], 1)
    assert plot_ranking(ranked, "", "Anymal", "m").get_size_inches()[1] < 20
    ranked = rank([Result("human", 0, "ok", 0.5, 0.4, 0.6), Result("x", 0, "skipped", fault=Fault("no"))])
    labels = [label.get_text() for label in plot_ranking(ranked, "", "Anymal", "m").axes[0].get_yticklabels()]
    assert labels == ["human (baseline)"]


def test_intervals_are_drawn_within_the_bounds_of_the_fitness(figures):
    rows = [Result(name, seed, "ok", x, x, x) for name in ("human", "a") for seed, x in enumerate((0.0, 1.0, 1.0))]
    for bounds, within in (((0.0, 1.0), True), ((-9.0, 9.0), False)):
        lines = plot_ranking(rank(rows, bounds), "", "Anymal", "m").axes[0].lines
        ends = [line.get_xdata() for line in lines if len(line.get_xdata()) == 2 and line.get_linewidth() > 2]
        assert len(ends) == 2 and all((high <= 1.0) == within for _, high in ends)
