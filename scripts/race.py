"""Replay races over recorded runs: what would each rule have kept, and what would it have cost?

    python scripts/race.py runs/FULL_RUN [runs/ANOTHER ...] [--until ITERATION] [--rungs 6,12 10,20]

A run is recorded without a race, with ``evaluation.record=true`` and about 20 ``evaluation.points``. For each rule and
set of rungs a line says how often the best candidate at the end goes through, how many of the best three, what the best
that goes through has less than the best, how many candidates are stopped that would have ended as good as the third
best (``wronged``), and the share of the env-steps. Ties with the third best count as one of the best three.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Sequence

from envcoder_bench.report.episodes import Evaluation, read_episodes
from envcoder_bench.run.race import HALVING, TOP, Rules, decide, plan_rungs
from envcoder_bench.tasks.base import BASELINES

SHARES = ((0.3, 0.5, 0.7), (0.2, 0.4, 0.6, 0.8), (0.25, 0.5), (0.5,), (0.5, 0.75), (0.1, 0.2, 0.4, 0.7))
RULES = (
    *(Rules(reach=reach) for reach in (0.0, 0.1, 0.25, 0.5, 1.0)),
    *(Rules(HALVING, keep=keep) for keep in (0.3, 0.5, 0.7)),
)


class Recording:
    """The evaluations of a run without a race, of one seed or of all, up to an iteration that stands for the end."""

    def __init__(self, history: dict[int, Evaluation], until: int | None = None) -> None:
        self.history = {k: own for k, own in history.items() if until is None or k <= until}
        self.end = max(self.history)
        keys = self.history[self.end]
        self.names = [name for name in dict.fromkeys(name for name, _ in keys) if name not in BASELINES]
        rows = {name: [sum(x) / len(x) for (own, _), x in keys.items() if own == name] for name in self.names}
        self.final = {name: sum(own) / len(own) for name, own in rows.items()}

    def of_seed(self, seed: int) -> Recording:
        return Recording({k: {key: x for key, x in own.items() if key[1] == seed} for k, own in self.history.items()})

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for _, seed in self.history[self.end]})


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


def judge(recording: Recording, reached: dict[str, int]) -> tuple[int, float, int, float]:
    """Return the kept of the best three, the loss of fitness, the number of wronged, and the share of env-steps."""
    final = recording.final
    best = sorted(final.values(), reverse=True)
    through = [final[name] for name, iteration in reached.items() if iteration == recording.end]
    kept = sum(fitness >= best[TOP - 1] for fitness in through)
    wronged = sum(fitness >= best[TOP - 1] for fitness in final.values()) - kept
    return min(kept, TOP), best[0] - max(through), wronged, sum(reached.values()) / (len(reached) * recording.end)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--until", nargs="+", type=int, help="iterations that stand for the end (default: the last)")
    parser.add_argument("--rungs", nargs="+", help="iterations of the rungs, such as 6,12 10,20 (default: shares)")
    args = parser.parse_args()
    recordings = []
    for run in args.runs:
        history = read_episodes(run / "episodes.csv")
        for until in args.until or [None]:
            whole = Recording(history, until)
            recordings += [whole.of_seed(seed) for seed in whole.seeds]
            recordings += [whole] * (len(whole.seeds) > 1)
            print(
                f"{run}: {len(whole.names)} candidates, seeds {whole.seeds}, {len(history)} evaluations to {whole.end}"
            )
    sets = [("rungs " + words, [int(x) for x in words.split(",")]) for words in args.rungs or ()]
    sets = sets or [(" ".join(f"{share:.0%}" for share in shares), shares) for shares in SHARES]
    print(f"\neach over {len(recordings)} recordings: one for each seed, and one for all seeds of a run together")
    print(
        f"{'rungs':20} {'rule':22} {'best kept':>9} {'top 3 kept':>10} {'loss mean':>9} {'max':>6} {'wronged':>7}"
        f" {'env-steps':>9}"
    )
    for words, rungs in sets:
        for rules in RULES:
            rows = []
            for recording in recordings:
                asked = sorted({max(1, round(x * recording.end)) if isinstance(x, float) else x for x in rungs})
                own = plan_rungs([x for x in asked if x < recording.end], recording.end, recording.history)
                rows.append(judge(recording, replay(recording, rules, own)))
            top, losses, wronged, shares = zip(*rows)
            rule = f"halving, keep {rules.keep}" if rules.rule == HALVING else f"confidence, reach {rules.reach}"
            print(
                f"{words:20} {rule:22} {statistics.mean(x <= 0 for x in losses):9.0%}"
                f" {statistics.mean(top) / TOP:10.0%} {statistics.mean(losses):9.3f} {max(losses):6.3f}"
                f" {statistics.mean(wronged):7.1f} {statistics.mean(shares):9.0%}"
            )


if __name__ == "__main__":
    main()
