"""Replay races of one seed, of which the savings go to further seeds of candidates that cannot be told from the best.

    python scripts/race_further.py runs/FULL_RUN_OF_THREE_SEEDS [--until ITERATION ...]

Each seed of the recording races by itself; its other seeds are the further ones, as ``race.further_seeds``. The winner,
by the seeds that it was trained with, is judged by its mean over all seeds.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import race

from envcoder_bench.core.errors import exit_on_user_error
from envcoder_bench.run.race import Rules, contenders


def winners(whole: race.Recording, seed: int, most: int) -> tuple[str, str, float, float]:
    """Return the winner of the race of a seed, that with further seeds, and the shares of env-steps of both."""
    own, rules = whole.of_seed(seed), Rules()
    reached = race.replay(own, rules, race.rungs_of(own, race.SHARES, rules.rule))
    through = [name for name, end in reached.items() if end == own.end]
    close = contenders(own.history[own.end], through, rules.level)
    saved = sum(own.end - end for end in reached.values())
    count = min(most, saved // own.end // len(close)) if len(close) > 1 else 0
    others = [other for other in whole.seeds if other != seed][:count]
    final = [whole.of_seed(other).final for other in (seed, *others)]

    def mean(name: str) -> float:
        return statistics.mean(fitness[name] for fitness in final if name in fitness)

    share = 1 - saved / (len(reached) * own.end)
    further = len(others) * len(close) / len(reached)
    return max(through, key=lambda name: own.final[name]), max(close, key=mean), share, share + further


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--until", nargs="+", type=int, default=[None])
    args = parser.parse_args()
    rows: dict[str, list[tuple[bool, float, float]]] = {"one seed": [], "and further seeds": []}
    for until in args.until:
        whole = race.Recording(race.recorded(args.run), until)
        best = max(whole.final.values())
        for seed in whole.seeds:
            first, second, *shares = winners(whole, seed, len(whole.seeds) - 1)
            for label, name, share in zip(rows, (first, second), shares):
                rows[label].append((whole.final[name] >= whole.low, best - whole.final[name], share))
    for label, outcomes in rows.items():
        within, loss, share = (statistics.mean(column) for column in zip(*outcomes))
        print(f"{label:18} within interval {within:4.0%}, mean loss {loss:.4f}, env-steps {share:4.0%}")


if __name__ == "__main__":
    with exit_on_user_error("race_further"):
        main()
