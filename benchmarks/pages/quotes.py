"""Sentences of the README with numbers of the records, for ``<!-- quote NAME --> ... <!-- end -->``."""

from collections.abc import Callable, Sequence
from operator import itemgetter

from bench.records import Record, place
from studies import analysis

from .tables import select

BEST = 20  # number of the best candidates in the study of ranks
_date = itemgetter("date")


def whole_run(records: Sequence[Record]) -> str:
    """Return the least and the greatest time of the card measured last; of runs with the page if there are any."""
    size = (250, 256, 300)
    runs = [r for r in records if r["kind"] == "run" and (r["candidates"], r["envs"], r["iterations"]) == size]
    runs.sort(key=lambda r: r["date"])
    same_machine = [r for r in runs if r["label"] == runs[-1]["label"]]
    complete = [r for r in same_machine if "after_last_iteration_s" in r]
    timed, page = (complete, "page included") if complete else (same_machine, "without the page")
    times = sorted(r["seconds"] for r in timed)
    count = f"in {len(times)} runs" if len(times) > 1 else "in one run"
    span = " to ".join(dict.fromkeys(f"{seconds:.0f}" for seconds in (times[0], times[-1])))
    days = " to ".join(dict.fromkeys(r["date"].split()[0] for r in (timed[0], timed[-1])))
    what = "The whole command for 250 candidates and 300 iterations"
    return f"{what} took {span} s {count}, {page} ({place(timed[-1])}, {days})."


def processes(records: Sequence[Record]) -> str:
    """Return what one process makes of what processes with a candidate each make, on one card."""
    row = max((r for r in select("processes", list(records)) if "tool" in r and r["device"] == "cuda"), key=_date)
    times = f"{row['tool'] / row['total']:.0f} times"
    return (
        f"{row['tool_candidates']} candidates in one process make {times} the env-steps/s of {row['processes']}"
        f" processes that train one each ({place(row)}, {row['date'].split()[0]})."
    )


def processor(records: Sequence[Record]) -> str:
    """Return the speed without a GPU."""
    on_cpu = [r for r in records if r["kind"] == "scaling" and r["device"] == "cpu" and r["candidates"] == 16]
    row = max(on_cpu, key=_date)
    return (
        f"Without a GPU, {row['candidates']} candidates with {row['envs']} environments train at"
        f" {row['training'] / 1e3:.0f} k env-steps/s, {row['training'] / row['physics']:.0%} of bare physics"
        f" ({place(row)}, {row['date'].split()[0]}): learning takes most of the time there.".replace("%", " %")
    )


def ranks(records: Sequence[Record], study: Sequence[Record]) -> str:
    """Return how a ranking with the default setting agrees with a reference: over all candidates, and the best."""
    runs = [points[-1] for points in analysis.trainings(study, "ranks")]
    parts = []
    for task in ("Anymal", "Ant"):
        task_runs = [r for r in runs if r["task"] == task and r["complete"]]
        defaults = [r for r in task_runs if (r["role"], r["envs"], r["iterations"]) == ("cheap", 256, 500)]
        cheap = max(defaults, key=_date)
        references = [r for r in task_runs if r["role"] == "reference" and r["candidates"] == cheap["candidates"]]
        reference = max(references, key=_date)
        every, first = agreement(cheap, reference, None), agreement(cheap, reference, BEST)
        parts.append(
            f"on {task} {every[0]:.2f} over all {cheap['candidates']} and {first[0]:.2f} among the best {BEST}"
            f" (two seeds of the reference: {every[1]:.2f} and {first[1]:.2f})"
        )
    return f"Spearman's correlation with a reference of more environments and other seeds is {'; '.join(parts)}."


def agreement(cheap: Record, reference: Record, best: int | None) -> tuple[float, float]:
    """Return Spearman's correlation of a cheap ranking with the reference, and that of two seeds of the reference.

    Args:
        best: only so many of the first candidates of the reference; None for all.
    """
    true = analysis.means(reference, range(reference["seeds"]))
    estimates = analysis.means(cheap, range(cheap["seeds"]))
    kept = sorted((name for name in estimates if name in true), key=lambda name: -true[name])[:best]
    few = {**reference, "fitness": {name: reference["fitness"][name] for name in kept}}
    return analysis.spearman({name: estimates[name] for name in kept}, true), analysis.reliability(few)


QUOTES: dict[str, Callable[[Sequence[Record], Sequence[Record]], str]] = {
    "speed": lambda records, _: " ".join((whole_run(records), processes(records), processor(records))),
    "ranks": ranks,
}
