"""Replay races over recorded runs: what would each rule have kept, and what would it have cost?

    python scripts/race.py runs/FULL_RUN [runs/ANOTHER ...] [--until ITERATION] [--rungs 6,12 10,20]
    python scripts/race.py runs/FULL_RUN --pools 20 --picture docs/images/racing.png
    python scripts/race.py runs/FULL_RUN --points --pools 100 --size 40

A run is recorded without a race, with ``evaluation.record=true`` and about 20 ``evaluation.points``. For each rule and
set of rungs a line says how often the best candidate at the end goes through, how often one that goes through is within
the 95 % interval of the best, how many of the best three go through, what the best that goes through has less than the
best, how many candidates are stopped that would have ended as good as the third best (``wronged``), and the share of
the env-steps. Ties with the third best count as one of the best three. ``d3rb`` is the model selection of ORSO with the
env-steps of the rule above it; what it names is judged by the fitness at the end of a whole training.

``--points`` takes a run of one seed that was not recorded: the fitness of points.csv, and at the end that of
results.csv. Without single episodes only races by halving can be replayed.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Iterator, Mapping, Sequence

import race_d3rb

from envcoder_bench.core.errors import exit_on_user_error
from envcoder_bench.report.episodes import Evaluation, read_episodes
from envcoder_bench.report.points import read_points
from envcoder_bench.report.results import read_results
from envcoder_bench.report.statistics import mean_interval
from envcoder_bench.run.race import CONFIDENCE, HALVING, SHARES, TOP, Rules, decide, plan_rungs
from envcoder_bench.tasks.base import BASELINES

SETS = (SHARES, (0.15, 0.25, 0.4, 0.7), (0.3, 0.5, 0.7), (0.2, 0.4, 0.6, 0.8), (0.1, 0.2, 0.4, 0.6, 0.8), (0.5,))
RULES = (
    Rules(),
    *(Rules(CONFIDENCE, reach=reach) for reach in (0.0, 0.25, 1.0)),
    *(Rules(HALVING, keep=keep) for keep in (0.3, 0.5, 0.7)),
)
D3RB_SCALE = 0.1  # of the fitness, as race_d3rb.select
KEPT = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of the picture
REACHES = (0.0, 0.1, 0.25, 0.5, 1.0)


class Recording:
    """The evaluations of a run without a race, of one seed or of all, up to an iteration that stands for the end."""

    def __init__(
        self, history: dict[int, Evaluation], until: int | None = None, lows: Mapping[str, float] | None = None
    ) -> None:
        self.history = {k: own for k, own in history.items() if until is None or k <= until}
        self.end = max(self.history)
        keys = self.history[self.end]
        self.names = [name for name in dict.fromkeys(name for name, _ in keys) if name not in BASELINES]
        rows = {name: [sum(x) / len(x) for (own, _), x in keys.items() if own == name] for name in self.names}
        self.final = {name: sum(own) / len(own) for name, own in rows.items()}
        best = max(self.names, key=lambda name: self.final[name])
        episodes = [x for (name, _), own in keys.items() if name == best for x in own]
        self._lows = lows  # of the final fitness, where there are no episodes
        # as in the ranking
        self.low = lows[best] if lows else mean_interval(rows[best] if len(rows[best]) > 1 else episodes)[1]

    def of_seed(self, seed: int) -> Recording:
        return Recording({k: {key: x for key, x in own.items() if key[1] == seed} for k, own in self.history.items()})

    def of(self, names: set[str]) -> Recording:
        chosen = {k: {key: x for key, x in own.items() if key[0] in names} for k, own in self.history.items()}
        return Recording(chosen, lows=self._lows)

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for _, seed in self.history[self.end]})

    def curves(self) -> dict[str, list[float]]:
        """Return the fitness of each candidate at each evaluation."""
        rows: dict[str, list[float]] = {}
        for name in self.names:
            every = [[sum(x) / len(x) for (own, _), x in at.items() if own == name] for at in self.history.values()]
            rows[name] = [sum(own) / len(own) if own else math.nan for own in every]
        return rows


@dataclass(frozen=True)
class Outcome:
    """What a race keeps of the best candidates, and what it costs; NaN where there is no such number."""

    best: bool
    within: bool
    top: float
    loss: float
    wronged: float
    share: float


def replay(recording: Recording, rules: Rules, rungs: Sequence[int]) -> dict[str, int]:
    """Return the iteration at which each candidate is stopped, or the last one."""
    reached = dict.fromkeys(recording.names, recording.end)
    alive = list(recording.names)
    for rung in rungs:
        past = {k: own for k, own in recording.history.items() if k <= rung}
        for stop in decide(rules, past, alive, recording.end, len(rungs)):
            reached[stop.candidate] = rung
            alive.remove(stop.candidate)
    return reached


def judge(recording: Recording, reached: dict[str, int]) -> Outcome:
    """Compare what goes through with the best of the recording."""
    final = recording.final
    best = sorted(final.values(), reverse=True)
    through = [final[name] for name, iteration in reached.items() if iteration == recording.end]
    kept = sum(fitness >= best[TOP - 1] for fitness in through)
    wronged = sum(fitness >= best[TOP - 1] for fitness in final.values()) - kept
    share = sum(reached.values()) / (len(reached) * recording.end)
    winner = max(through)
    return Outcome(winner >= best[0], winner >= recording.low, min(kept, TOP), best[0] - winner, wronged, share)


def judge_d3rb(recording: Recording, share: float, seed: int = 0) -> Outcome:
    """Judge what D3RB names with a share of the env-steps of all candidates."""
    whole = len(recording.names) * recording.end
    iterations = list(recording.history)
    name, reached = race_d3rb.select(recording.curves(), iterations, share * whole, D3RB_SCALE, Random(seed))
    named, best = recording.final[name], max(recording.final.values())
    return Outcome(
        named >= best, named >= recording.low, math.nan, best - named, math.nan, sum(reached.values()) / whole
    )


def rungs_of(recording: Recording, wanted: Sequence[float], rule: str) -> list[int]:
    """Return the rungs of a race over the recording: shares of its iterations, or iterations."""
    asked = sorted({max(1, round(x * recording.end)) if isinstance(x, float) else int(x) for x in wanted})
    return plan_rungs([x for x in asked if x < recording.end], recording.end, recording.history, rule)


def race(recording: Recording, rules: Rules, wanted: Sequence[float] = SHARES) -> Outcome:
    return judge(recording, replay(recording, rules, rungs_of(recording, wanted, rules.rule)))


def recorded(run: Path) -> dict[int, Evaluation]:
    """Return the recorded evaluations of a run, without that of the untrained policy."""
    return {iteration: own for iteration, own in read_episodes(run / "episodes.csv").items() if iteration}


def read(run: Path, untils: Sequence[int | None], pools: int, size: int | None = None) -> Iterator[Recording]:
    """Yield the recordings of a run: to each iteration, each seed and all together, and random subsets of each."""
    history = recorded(run)
    for until in untils:
        whole = Recording(history, until)
        for own in [whole.of_seed(seed) for seed in whole.seeds] + [whole] * (len(whole.seeds) > 1):
            yield from subsets(own, pools, size)


def read_unrecorded(run: Path, pools: int, size: int | None = None) -> Iterator[Recording]:
    """Yield the curves of a run of one seed, and random subsets of its candidates."""
    rows = [row for row in read_results(run / "results.csv") if row.measured]
    if len({row.seed for row in rows}) > 1:
        raise SystemExit(f"{run} has several seeds; --points takes a run of one")
    history: dict[int, Evaluation] = {}
    for point in read_points(run / "points.csv"):
        history.setdefault(point.iteration, {})[point.candidate, point.seed] = (point.fitness,)
    history[max(history)] = {(row.candidate, row.seed): (row.fitness,) for row in rows}
    lows = {row.candidate: row.fitness_ci_low for row in rows}
    yield from subsets(Recording(dict(sorted(history.items())), lows=lows), pools, size)


def subsets(recording: Recording, count: int, size: int | None) -> Iterator[Recording]:
    """Yield a recording, and random subsets of its candidates, of half of them unless ``size`` is given."""
    names = recording.names
    if size is not None and not 1 <= size <= len(names):
        raise SystemExit(f"--size {size}: there are {len(names)} candidates")
    yield recording
    for k in range(count):
        yield recording.of(set(Random(k).sample(names, size or (len(names) + 1) // 2)))


def words(rules: Rules) -> str:
    if rules.rule == CONFIDENCE:
        return f"{rules.rule}, reach {rules.reach}"
    return f"{rules.rule}, keep {rules.keep}"


def line(label: str, rule: str, outcomes: Sequence[Outcome]) -> str:
    best, within, top, losses, wronged, shares = zip(*(vars(own).values() for own in outcomes))
    return (
        (
            f"{label:20} {rule:22} {statistics.mean(best):9.0%} {statistics.mean(within):15.0%}"
            f" {statistics.mean(top) / TOP:10.0%} {statistics.mean(losses):9.3f} {max(losses):6.3f}"
            f" {statistics.mean(wronged):7.1f} {statistics.mean(shares):9.0%}"
        )
        .replace("nan%", "   -")
        .replace("nan", "  -")
    )


def curves(recordings: Sequence[Recording]) -> dict[str, list[tuple[float, float]]]:
    """Return for each rule the share of env-steps and of races within the interval, over its setting."""

    def point(outcomes: Sequence[Outcome]) -> tuple[float, float]:
        return statistics.mean(x.share for x in outcomes), statistics.mean(x.within for x in outcomes)

    families = {
        "patient, by keep": [Rules(keep=keep) for keep in KEPT],
        "halving, by keep": [Rules(HALVING, keep=keep) for keep in KEPT],
        "confidence, by reach": [Rules(CONFIDENCE, reach=reach) for reach in REACHES],
    }
    found = {name: [point([race(own, x) for own in recordings]) for x in rules] for name, rules in families.items()}
    shares = [k / 10 for k in range(1, 11)]
    found["D3RB, by env-steps"] = [point([judge_d3rb(own, share) for own in recordings]) for share in shares]
    return found


def draw(panels: dict[str, dict[str, list[tuple[float, float]]]], path: Path) -> None:
    """Draw a panel for each run."""
    from matplotlib.ticker import PercentFormatter

    from envcoder_bench.report.figures import BLACK, COLOURS, GREY, new_figure, save_figure

    about = "a point is a rule with one setting; the default is the third point of patient (keep 0.5); dotted: the goal"
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    width, height = 3.6 * columns + 0.6, 3.0 * rows + 0.8
    figure, axes, top = new_figure(width, height, "What a race saves and loses", about, rows, columns)
    for own, (title, lines) in zip(axes, panels.items()):
        for colour, (name, points) in zip(COLOURS, lines.items()):
            own.plot(*zip(*sorted(points)), ".-", color=colour, label=name)
        own.axvline(0.3, color=GREY, linewidth=0.8, linestyle=":")
        own.axhline(0.9, color=GREY, linewidth=0.8, linestyle=":")
        own.set(xlim=(0, 1.02), ylim=(0, 1.04))
        own.set_title(title, fontsize=9, color=BLACK)
        own.set_xlabel("env-steps, of those without a race", fontsize=8)
        own.set_ylabel("best kept, within its interval", fontsize=8)
        own.xaxis.set_major_formatter(PercentFormatter(1.0))
        own.yaxis.set_major_formatter(PercentFormatter(1.0))
    for own in axes[len(panels) :]:
        own.set_visible(False)
    axes[0].legend(fontsize=8, loc="lower right", frameon=False)
    bottom = 0.5 / height
    figure.subplots_adjust(left=0.7 / width, right=0.98, bottom=bottom, top=top - 0.03, wspace=0.3, hspace=0.42)
    save_figure(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--until", nargs="+", type=int, help="iterations that stand for the end (default: the last)")
    parser.add_argument("--rungs", nargs="+", help="iterations of the rungs, such as 6,12 10,20 (default: shares)")
    parser.add_argument("--pools", type=int, default=0, help="also so many random subsets of the candidates of each")
    parser.add_argument("--size", type=int, help="candidates of a subset (default: half of them)")
    parser.add_argument("--points", action="store_true", help="the runs were not recorded; replay halving only")
    parser.add_argument(
        "--picture", type=Path, help="draw what a race saves and loses to this file, instead of a table"
    )
    args = parser.parse_args()
    if args.points and (args.until or args.picture):
        parser.error("--points has the end of the run alone: leave out --until and --picture")
    recordings, panels = [], {}
    for run in args.runs:
        if args.points:
            own = list(read_unrecorded(run, args.pools, args.size))
        else:
            own = list(read(run, args.until or [None], args.pools, args.size))
        recordings += own
        names, ends = len(own[0].names), ", ".join(str(x) for x in dict.fromkeys(x.end for x in own))
        print(f"{run}: {names} candidates, seeds {own[-1].seeds}, to {ends}: {len(own)} recordings")
        if args.picture:
            task = json.loads((run / "summary.json").read_text(encoding="utf-8"))["task"]
            panels[f"{task}, {names} candidates, to iteration {ends}"] = curves(own)
    if args.picture:
        draw(panels, args.picture)
        return
    sets = [("rungs " + text, [int(x) for x in text.split(",")]) for text in args.rungs or ()]
    sets = sets or [(" ".join(f"{share:.0%}" for share in shares), shares) for shares in SETS]
    print(
        f"\n{'rungs':20} {'rule':22} {'best kept':>9} {'within interval':>15} {'top 3 kept':>10} {'loss mean':>9}"
        f" {'max':>6} {'wronged':>7} {'env-steps':>9}"
    )
    for label, wanted in sets:
        for rules in [own for own in RULES if own.rule == HALVING or not args.points]:
            outcomes = [race(own, rules, wanted) for own in recordings]
            print(line(label, words(rules), outcomes))
            if wanted is sets[0][1]:
                print(line("", "  d3rb", [judge_d3rb(x, own.share) for x, own in zip(recordings, outcomes)]))


if __name__ == "__main__":
    with exit_on_user_error("race"):
        main()
