"""Two candidates of a run: which is better, how sure this is, how many seeds would tell, why, and signs of a hack."""

from envcoder_bench.core.shell import display_path
from envcoder_bench.core.words import decimal_places, join_words, wrap
from envcoder_bench.report.certainty import half_step
from envcoder_bench.report.course import where
from envcoder_bench.report.page.charts import step_fitness
from envcoder_bench.report.page.shell import PAGE
from envcoder_bench.report.table import numbers
from envcoder_bench.results.logs import StepFitnessLog, read_curves
from envcoder_bench.results.pairs import advice, sentence
from envcoder_bench.results.ranking import Ranked
from envcoder_bench.run.folder.policies import OpenedRun
from envcoder_bench.shaping.text import defined_kinds


def render_pair(run: OpenedRun, first: str, second: str, width: int = 100) -> str:
    """Return what a run says of two candidates, as text. No code of the run is executed.

    Raises UserError with near matches if the run has no such candidate.
    """
    pair = run.pairs.named(first, second)
    facts = pair_facts(run, first, second)
    head = [wrap(line, width) for line in (sentence(pair), advice(pair, display_path(run.folder.path))) if line]
    column = max(map(len, facts)) + 2
    lines = [wrap(f"{title.ljust(column)}{text}", width, then=" " * column) for title, text in facts.items()]
    return "\n".join([*head, "", *lines]) + "\n"


def pair_facts(run: OpenedRun, first: str, second: str) -> dict[str, str]:
    """Return what a run says of two candidates beside the verdict, by title."""
    rows = {row.candidate: row for row in run.ranked}
    both = [rows[first], rows[second]]
    page = run.folder.path / PAGE
    facts = {
        "fitness": _fitness(both),
        "each seed": _each_seed(run, first, second),
        "where": _where(run, first, second),
        "functions": _functions(run, first, second),
        "hacked?": _hacked(both),
        "more": f"{display_path(page)}, Why is one better?" if page.is_file() else "",
    }
    return {title: text for title, text in facts.items() if text}


def _fitness(rows: list[Ranked]) -> str:
    decimals = decimal_places([row.fitness for row in rows])
    texts = [numbers([(row.fitness, row.fitness_ci_low, row.fitness_ci_high)], decimals)[0] for row in rows]
    return ", ".join(f"{row.candidate} {text.strip() or 'none'}" for row, text in zip(rows, texts))


def _each_seed(run: OpenedRun, first: str, second: str) -> str:
    """Return the differences of the seeds that both have."""
    values = {row.key: row.fitness for row in run.rows if row.measured}
    seeds = sorted(seed for name, seed in values if name == first and (second, seed) in values)
    gaps = [values[first, seed] - values[second, seed] for seed in seeds]
    texts = numbers([(gap, float("nan"), float("nan")) for gap in gaps], decimal_places([*values.values()]), "+")
    return ", ".join(f"{text.strip()} (seed {seed})" for seed, text in zip(seeds, texts))


def _where(run: OpenedRun, first: str, second: str) -> str:
    if not run.folder.step_fitness.is_file():
        return ""
    return where(step_fitness(read_curves(run.folder.step_fitness, StepFitnessLog.columns)), first, second)


def _functions(run: OpenedRun, first: str, second: str) -> str:
    """Return which functions differ."""
    if not {first, second} <= {*run.sources}:
        return ""
    kinds = [defined_kinds(run.sources[name].source) for name in (first, second)]
    both = sorted(kinds[0] & kinds[1])
    words = [f"both define {join_words(both)}" if both else "they define none of the same functions"]
    words += [
        f"only {name} defines {join_words(sorted(only))}"
        for name, only in ((first, kinds[0] - kinds[1]), (second, kinds[1] - kinds[0]))
        if only
    ]
    return "; ".join(words)


def _hacked(rows: list[Ranked]) -> str:
    """Return what is known of both: the signs of ``results.hacks``, and half the physics step."""
    words = [f"{row.candidate}: {row.hacked or 'no sign'}" for row in rows]
    measured = any(row.half_step_fitness == row.half_step_fitness for row in rows)
    words += half_step(rows) or ([] if measured else ["half the physics step was not measured (--half_step)"])
    return "; ".join(words)
