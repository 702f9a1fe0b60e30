"""Invented archives and models."""

import random

from envcoder_bench.results.logs import Point
from envcoder_bench.search import archive as records
from envcoder_bench.search.archive import Archive, Attempt, proposal_name
from envcoder_bench.shaping.contract import Fault


def source(name, lines=3):
    body = "".join(f"    reward = reward + {k} * pole_angle  # {name}\n" for k in range(lines))
    head = f'"""Idea of {name}."""\n\n\ndef compute_reward(pole_angle):\n    reward = -pole_angle ** 2\n'
    return f"{head}{body}    return reward\n"


def random_archive(seed, rounds=4, count=8):
    """An archive of several rounds, with failures, long sources and many components."""
    rng = random.Random(seed)
    attempts = []
    for number in range(1, rounds + 1):
        for k in range(count):
            name = proposal_name(number, k)
            parents = tuple(a.name for a in rng.sample(attempts, min(len(attempts), rng.randrange(3))))
            status = rng.choice([*[records.OK] * 6, records.FAILED, records.FAILED_AT_LOAD, records.NO_CODE])
            text = "" if status == records.NO_CODE else source(name, rng.choice([3, 30, 300]))
            if status != records.OK:
                line, message = rng.randrange(1, 12), "bad " * rng.choice([2, 500])
                fault = Fault(message, f"/tmp/x/{name}.py", line, "compute_reward")
                attempts.append(Attempt(name, number, text, parents, "made up", status, fault=fault))
                continue
            fitness = rng.random()
            points = tuple(
                Point(name, number, i, i * 10, rng.random(), 50.0, {f"c{j}": (0.1, -1.0, 1.0) for j in range(seed % 5)})
                for i in range(1, 14)
            )
            attempts.append(
                Attempt(
                    name, number, text, parents, "made up", records.OK, fitness, None, 50.0, points, {number: fitness}
                )
            )
    seeds = {number: 0.5 for number in range(1, rounds + 1)}
    baselines = {name: Attempt(name, 0, "x", fitness=0.5, by_seed=seeds) for name in ("human", "unshaped")}
    return Archive(attempts, baselines)


def cuts(text):
    """Lengths to cut a file of lines at: around the ends of its lines, and every 41 bytes between."""
    ends = [i + 1 for i, byte in enumerate(text) if byte == ord("\n")]
    around = {end + k for end in ends for k in (-2, -1, 0, 1, 2)}
    return sorted(size for size in {0, *range(0, len(text), 41), *around} if size <= len(text))
