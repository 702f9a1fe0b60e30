"""The report on searches without a language model."""

from __future__ import annotations

import math
from itertools import combinations
from statistics import mean
from typing import Dict, List, NamedTuple

from bench.records import Record
from bench.task_tables import bounds

from envcoder_bench.report.statistics import mean_interval
from envcoder_bench.tasks.base import HUMAN

from . import analysis
from .analysis import known
from .bootstrap import bootstrap, pooled_iqm, probability_of_improvement
from .evolution import BEST, NEW_TERM
from .lengths import SPARSE_REWARD
from .report_words import origins, shown, table

REFERENCE_SIZES = ("envs", "iterations", "overrides")
SEARCH_SIZES = ("rounds", "per_round", "batch")
Scores = Dict["Method", Dict[str, List[float]]]  # of each method and task
LEAST_SEARCHES = 3  # of a task and method, from which methods are compared


class Method(NamedTuple):
    """What distinguishes searches of one task and budget."""

    name: str
    terms: str
    kinds: str

    def __str__(self) -> str:
        return f"{self.name}{self.terms}, {self.kinds}"


def evolve(records: list[Record]) -> list[str]:
    references = {own[-1]["task"]: own[-1] for own in analysis.trainings(records, "evolve")}
    searches = [r for r in records if r["kind"] == "evolve" and r["role"] == "search"]
    searches = _of_one_budget([r for r in searches if r["task"] in references], references)
    groups: dict[tuple[str, str, Method], list[Record]] = {}
    for r in searches:
        groups.setdefault((r["kinds"], r["task"], _method(r)), []).append(r)
    if not groups:
        return []
    kinds, tasks, methods = (list(dict.fromkeys(keys)) for keys in zip(*groups))
    rows: list[list[str]] = []
    raw: Scores = {}
    pooled: Scores = {}
    for key in sorted(groups, key=lambda key: (kinds.index(key[0]), tasks.index(key[1]), methods.index(key[2]))):
        own, (_, task, method) = groups[key], key
        fitness = references[task]["fitness"]
        ends = [known(fitness.get(name, [])) for name in (SPARSE_REWARD, HUMAN)]
        sparse, human = (mean(end) if end else math.nan for end in ends)
        scores = [mean(known(r["fitness"][BEST])) for r in own if known(r["fitness"][BEST])]
        scaled = analysis.normalized(scores, sparse, human)
        if len(scores) >= LEAST_SEARCHES:
            raw.setdefault(method, {})[task] = scores
            pooled.setdefault(method, {})[task] = scaled
        values = [shown(mean_interval(scores, bounds(task))), shown(mean_interval(scaled))]
        values += [f"{x:.2f}" if x == x else "" for x in (sparse, human)]
        rows.append([task, str(method), f"{len(own)} x {own[0]['evaluations']}", *values])
    head = ["task", "method", "searches x evaluations", "fitness of the best on held-out seeds",
            "human-normalized", "sparse", "human"]  # fmt: skip
    used = [
        [r]
        for task in dict.fromkeys(row[0] for row in rows)
        for r in (references[task], *searches)
        if r["task"] == task
    ]
    return [*origins(used), *table(head, rows), "", *_pooled(raw, pooled)]


def _method(record: Record) -> Method:
    """Return a search's method, and how often rewards got a new term of the state, where this is not the default."""
    share = record.get("new_terms")  # True: a weight of 3 among the mutations, more than half of all candidates
    if share is None or share is True:
        terms = " without new terms" if share is None else " with many new terms"
    else:
        terms = "" if share == NEW_TERM else f" with {share:.0%} new terms"
    return Method(record["method"], terms, record["kinds"])


def _of_one_budget(searches: list[Record], references: dict[str, Record]) -> list[Record]:
    """Return the searches of each task with the sizes of its reference, and with the rounds of its last search."""
    same = [r for r in searches if all(r.get(k) == references[r["task"]].get(k) for k in REFERENCE_SIZES)]
    last = {(r["task"], r["kinds"]): [r.get(k) for k in SEARCH_SIZES] for r in same}
    return [r for r in same if [r.get(k) for k in SEARCH_SIZES] == last[r["task"], r["kinds"]]]


def _pooled(raw: Scores, scaled: Scores) -> list[str]:
    """Return the interquartile mean of each method over its tasks, and probabilities of improvement.

    These are of methods that differ in one thing.
    """
    lines = []
    for name, scores in scaled.items():
        own = {task: x for task, x in scores.items() if x}
        if own:
            tasks = f"{len(own)} task{'s' * (len(own) > 1)}"
            lines.append(
                f"- {name}: human-normalized interquartile mean over {tasks} {shown(bootstrap(pooled_iqm, own))}"
            )
    for first, second in combinations(raw, 2):
        if sum(x != y for x, y in zip(first, second)) > 1:
            continue
        both = [task for task in raw[first] if raw[first][task] and raw[second].get(task)]
        if both:  # of ranks alone, so that it needs no scale
            x, y = ({task: raw[name][task] for task in both} for name in (first, second))
            chance = shown(bootstrap(probability_of_improvement, x, y))
            lines.append(f"- probability that a search by {first} ends better than one by {second}: {chance}")
    return lines
