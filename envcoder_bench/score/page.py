"""A score as text for the terminal and as a page."""

import math
from collections.abc import Sequence

from envcoder_bench.core.words import aligned, counted, number, wrap
from envcoder_bench.report.page.shell import render
from envcoder_bench.score.document import Score, TaskScore
from envcoder_bench.score.protocol import CANARY, HELD_OUT_SEEDS, VALIDATION_SEEDS
from envcoder_bench.score.scoring import Estimate

Table = tuple[list[str], list[list[str]], list[str]]

TITLES = {"reward": "reward", "all": "all (controller allowed)"}  # of tracks
HOW = (
    "0 is the task without shaping, 1 the best reference that is known, trained in the same run with the same seeds."
    " The score is the interquartile mean over all searches of all tasks, its interval a bootstrap over the searches of"
    " each task and the held-out seeds.",
    f"Each search chooses its winner with {VALIDATION_SEEDS} seeds of its own. Winners are scored with {HELD_OUT_SEEDS}"
    " seeds that no search has, and that are drawn when the last search of all has ended.",
    "What a model may try, and what then happens: copies and near-copies are refused, and count among its candidates;"
    " copies of references do not win; a constant reward is refused; a reward that is exploited is marked as hacked,"
    " and its fitness is that of the task, not of the reward; code runs in a confined process that cannot write files"
    " or open connections; text in a docstring is shown to the model as data; a winner that fails with a seed has the"
    " fitness of unshaped there. On the track all a controller may be written by hand: then learned is near 0.",
    "The text below is in all published scores, so that data for training that have it can be found.",
)


def estimate_text(estimate: Estimate) -> str:
    """Return ``0.81 [0.64, 0.93]``."""
    if not math.isfinite(estimate.mean):
        return "unknown"
    return f"{number(estimate.mean)} [{number(estimate.low)}, {number(estimate.high)}]"


def score_text(score: Score, width: int) -> str:
    """Return the score for the terminal."""
    header, rows, kinds = task_table(score)
    right = {k for k, kind in enumerate(kinds) if kind == "number"}
    return "\n".join([*_lead(score, width), "", *aligned([header, *rows], right), ""])


def _lead(score: Score, width: int) -> list[str]:
    score_text = f"{estimate_text(score.score)} (unshaped 0, the best reference 1, human {number(score.human)})"
    lines = [f"{score.model}: {score_text if math.isfinite(score.score.mean) else 'no score, because no task counts'}"]
    shares = ((score.better, "better than human"), (score.cannot_tell, "cannot tell"), (score.worse, "worse"))
    if math.isfinite(score.better):
        lines.append(f"winners of searches: {', '.join(f'{100 * share:.0f} % {words}' for share, words in shares)}")
    if math.isfinite(score.gain.mean):
        lines.append(f"gain over the first round: {estimate_text(score.gain)}")
    dull = [task.name for task in score.tasks if not task.separates]
    if dull:
        lines.append(f"not counted, because references are too close to unshaped: {', '.join(dull)}")
    if score.changes:
        lines.append(f"not comparable with other scores, because of: {'; '.join(score.changes)}")
    return [wrap(text, width) for text in lines]


def task_table(score: Score) -> Table:
    """Return header, rows and kinds of columns of the tasks."""
    rows = []
    for task in score.tasks:
        values = task.values
        mean = {name: number(float(x.mean())) for name, x in values.references.items()}
        rows.append(
            [
                task.name,
                _counted(task, float(values.scores.mean())),
                number(task.human),
                number(float(values.runs.mean())),
                mean["human"],
                number(float(values.unshaped.mean())),
                f"{mean[task.best]} ({task.best})",
            ]
        )
    header = ["task", "score", "human's", "fitness", "human", "unshaped", "best reference"]
    return header, rows, ["name", *["number"] * 5, ""]


def search_table(score: Score) -> Table:
    """Return header, rows and kinds of columns of the searches."""
    header = ["task", "search", "winner", "score", "against human", "gain", "before training", "learned", "executable"]
    header += ["at first", "copies", "hacked", "env-steps to 90 %", "tokens", "cost", "device minutes"]
    rows = [
        [
            *(
                task.name,
                str(k),
                run.winner or "none",
                _counted(task, run.score),
                run.verdict,
                _counted(task, run.gain),
            ),
            *(_known(run.before_training), _percent(run.learned), _percent(run.executable)),
            *(_percent(run.executable_at_first), str(run.duplicates), str(run.hacked)),
            *("" if math.isnan(run.steps_to_90) else f"{run.steps_to_90:,.0f}", f"{run.tokens:,}"),
            *(_dollars([run.cost]), number(run.device_minutes)),
        ]
        for task in score.tasks
        for k, run in enumerate(task.runs, 1)
    ]
    return header, rows, ["name", "number", "name", "number", "", *["number"] * 11]


def score_page(score: Score) -> str:
    """Return the page of a score."""
    lead = _lead(score, 10_000)
    return render(
        "score/page.html",
        f"{score.model}, track {TITLES[score.track]}, {score.budget}",
        lead,
        facts_of(score),
        models=None,
        tasks=task_table(score),
        searches=search_table(score),
        how=HOW,
        canary=CANARY,
    )


def facts_of(score: Score) -> list[str]:
    """Return the facts below the title: protocol, sizes and cost."""
    runs = [run for task in score.tasks for run in task.runs]
    facts = [f"protocol {score.protocol}", counted(len(score.tasks), "task"), counted(len(runs), "search", "searches")]
    facts += [counted(sum(run.candidates for run in runs), "candidate")]
    facts += [f"cost {_dollars([run.cost for run in runs])}"]
    facts += [f"{number(sum(run.device_minutes for run in runs))} device minutes"]
    given = score.config.get("unseen")
    return [*facts, *([f"unseen tasks of the seed {given}, which was given"] if given else [])]


def _dollars(costs: Sequence[float | None]) -> str:
    """Return a cost in words; it is unknown if that of a part is."""
    known = [cost for cost in costs if cost is not None]
    return f"${math.fsum(known):.2f}" if len(known) == len(costs) else "unknown"


def _counted(task: TaskScore, value: float) -> str:
    return _known(value) if task.separates else "not counted"


def _known(value: float) -> str:
    return number(value) if math.isfinite(value) else ""


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if math.isfinite(share) else ""


def leaderboard_page(scores: Sequence[Score]) -> str:
    """Return the page of several scores, the best first within each track, budget and set of tasks."""
    header = ["model", "track", "budget", "tasks", "score", "human", "better", "cannot tell", "worse", "gain"]
    header += ["executable", "tokens", "cost", "changes"]
    rows = []
    for score in sorted(scores, key=lambda s: (s.track, s.budget, bool(s.changes), -_or_last(s.score.mean))):
        runs = [run for task in score.tasks for run in task.runs]
        shares = [run.executable for run in runs if math.isfinite(run.executable)]
        rows.append(
            [
                *(score.model, TITLES[score.track], score.budget, ", ".join(task.name for task in score.tasks)),
                *(estimate_text(score.score), number(score.human)),
                *(_percent(x) for x in (score.better, score.cannot_tell, score.worse)),
                estimate_text(score.gain) if math.isfinite(score.gain.mean) else "",
                _percent(sum(shares) / len(shares)) if shares else "",
                f"{sum(run.tokens for run in runs):,}",
                _dollars([run.cost for run in runs]),
                "; ".join(score.changes),
            ]
        )
    kinds = ["name", "", "", "", *["number"] * 9, ""]
    lead = ["How well models shape environments: scores with their intervals, checked when they were added."]
    return render(
        "score/page.html",
        "EnvCoderBench scores",
        lead,
        models=(header, rows, kinds),
        tasks=None,
        searches=None,
        how=HOW,
        canary=CANARY,
    )


def _or_last(value: float) -> float:
    return value if math.isfinite(value) else -math.inf
