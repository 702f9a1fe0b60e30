"""The effects of terms and sweeps, as text for the terminal and as sections of a page."""

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from envcoder_bench.core.words import aligned, counted, decimal_places, fixed, join_some, number, shorten, wrap
from envcoder_bench.report.page import shell
from envcoder_bench.report.page.intervals import Axis
from envcoder_bench.report.page.shell import Section
from envcoder_bench.report.table import numbers
from envcoder_bench.results.effects import NO_EFFECT, Effect, Study
from envcoder_bench.results.pairs import MOST_SEEDS, POWER
from envcoder_bench.results.speed import SHARE
from envcoder_bench.shaping.variants import FACTORS, label

HEADS = {0.0: "left out", 0.5: "halved", 2.0: "doubled"}
NAME_WIDTH = 24
MOST_POINTS = 40  # rows of a sweep


def render_studies(all_studies: Sequence[Study], width: int = 100, folder: str = "RUN") -> str:
    """Render the effects with notes; an empty string without any."""
    return "\n".join(_study(study, width, folder) for study in all_studies)


def _study(study: Study, width: int, folder: str) -> str:
    what = "sweep" if study.is_sweep else "terms"
    title = f"{what} of {study.original}: change of its fitness"
    if not math.isnan(study.fitness):
        title += f", {fixed(study.fitness, decimal_places([study.fitness]))},"
    columns = [column for column in zip(*study_rows(study)) if any(column[1:])]
    notes = [wrap(line, width) for line in study_notes(study, folder)]
    sections = [
        wrap(title + " by each change", width),
        "\n".join(aligned([*zip(*columns)])),
        "\n".join(notes),
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


def study_rows(study: Study) -> list[list[str]]:
    """Return the table of a study as texts, its header first."""
    if study.is_sweep:
        return _sweep_rows(study)
    return _term_rows(study, dict(zip([effect.candidate for effect in study.effects], effect_texts(study.effects))))


def effect_texts(effects: Sequence[Effect]) -> list[str]:
    """Return the effects as text, with ``!`` where they differ from 0."""
    means = [effect.effect for effect in effects if not math.isnan(effect.effect)]
    texts = numbers([(effect.effect, effect.ci_low, effect.ci_high) for effect in effects], decimal_places(means), "+")
    marked = [f"{text.rstrip()}!" if effect.significant else text for effect, text in zip(effects, texts)]
    return [effect.status or text for effect, text in zip(effects, marked)]


def speed_text(effect: Effect) -> str:
    """Return how many times as many env-steps a variant needs, e.g. ``1.8 [1.2, 2.7]!``."""
    if math.isnan(effect.slower):
        return ""
    if effect.seeds and not effect.reached:
        return "never"
    text = f"{'>' if effect.reached < effect.seeds else ''}{effect.slower:.2f}"
    if not math.isnan(effect.slower_low):
        text += f" [{effect.slower_low:.2f}, {fixed(effect.slower_high, 2)}]"
    return f"{text}!" if effect.slower_significant else text


def _term_rows(study: Study, texts: Mapping[str, str]) -> list[list[str]]:
    """Return the table of terms and functions; ``texts`` are of the effects, by candidate."""
    header = ["term", "share", *(HEADS[factor] for factor in FACTORS), "steps if left out"]
    rows = []
    for term in study.terms:
        by_factor = study.of_term(term)
        first = next(iter(by_factor.values()))
        share = "" if math.isnan(first.share) else f"{100 * first.share:.0f} %"
        cells = [texts[by_factor[factor].candidate] if factor in by_factor else "" for factor in FACTORS]
        speed = speed_text(by_factor[0.0]) if 0.0 in by_factor else ""
        rows.append([shorten(term, NAME_WIDTH), share, *cells, speed])
    functions = [effect for effect in study.effects if effect.function]
    if functions and rows:
        rows.append(["function", "", "left out", "", "", ""])
    header = header if study.terms else ["function", "", "left out", "", "", "steps if left out"]
    for effect in functions:
        name = shorten(effect.function, NAME_WIDTH)
        rows.append([name, "", texts[effect.candidate], "", "", speed_text(effect)])
    return [header, *rows]


def _sweep_rows(study: Study) -> list[list[str]]:
    names = list(study.usual)
    original = Effect(study.original, study.original, values=study.usual, fitness=study.fitness)
    ordered = sorted([*study.effects, original], key=lambda x: math.inf if math.isnan(x.fitness) else -x.fitness)
    texts = dict(zip([effect.candidate for effect in study.effects], effect_texts(study.effects)))
    texts[study.original] = "the original"
    rows = [
        [*(f"{effect.values.get(name, math.nan):.6g}" for name in names), texts[effect.candidate], speed_text(effect)]
        for effect in ordered[:MOST_POINTS]
    ]
    if len(ordered) > MOST_POINTS:
        rows.append([f"{len(ordered) - MOST_POINTS} more in terms.csv", *[""] * (len(names) + 1)])
    return [[*map(label, names), "change of fitness", "steps"], *rows]


def verdicts(study: Study) -> dict[str, list[str]]:
    """Return what is known of the changes: by sentence, their names."""
    by_verdict: dict[str, list[str]] = {}
    for effect in study.effects:
        if effect.significant:
            by_verdict.setdefault("better" if effect.effect > 0 else "worse", []).append(effect.what)
    clear = {effect.term for effect in study.effects if effect.significant}
    compared = {effect.term or effect.function for effect in study.effects if not math.isnan(effect.p)} - {""}
    unclear = [term for term in study.terms if term in compared - clear]
    unclear += [effect.function for effect in study.effects if effect.function in compared and not effect.significant]
    if unclear and study.comparisons:
        by_verdict[NO_EFFECT] = unclear
    return by_verdict


def seeds_that_show(study: Study, folder: str = "RUN") -> list[str]:
    """Return how many seeds would show an effect that matters; empty if that is not known."""
    if not study.comparisons or math.isnan(study.size):
        return []
    effect = f"an effect of {number(study.size, 2)}"
    if study.seeds_needed is None:
        return [f"over {MOST_SEEDS:,} seeds would show {effect} of any change"]
    if study.seeds_needed <= study.most_seeds:
        return [f"{counted(study.most_seeds, 'seed')} show {effect} of any change in {100 * POWER:.0f} % of runs"]
    return [
        f"{counted(study.seeds_needed, 'seed')} would show {effect} of any change in {100 * POWER:.0f} % of runs:"
        f" eval-shapers --extend {folder} --seeds {study.seeds_needed}"
    ]


def study_lead(all_studies: Sequence[Study], folder: str = "RUN") -> list[str]:
    """Return what a run with variants decides, for the head of its page; empty without variants."""
    lines = []
    for study in all_studies:
        words = [f"{word}: {join_some(names, 8)}" for word, names in verdicts(study).items()]
        what = "sweep" if study.is_sweep else "terms"
        lines.append(f"{what} of {study.original}: {'; '.join(words) or NO_EFFECT}")
        lines += seeds_that_show(study, folder)
    return lines


def study_notes(study: Study, folder: str = "RUN") -> list[str]:
    """Return what the numbers mean, and how sure they are."""
    lines = []
    if math.isnan(study.fitness):
        lines.append(f"{study.original} has no fitness at the end of the training, so that nothing is compared with it")
    elif not study.has_learned:
        lines.append(
            f"{study.original} is not better than the policy before training: train longer, to see which terms matter"
        )
    if study.comparisons:
        # which changes matter, and how small an effect the runs could have missed
        by_verdict = verdicts(study)
        for word in ("better", "worse") if not study.is_sweep else ():  # a sweep's table says it
            lines += [f"{word}: {', '.join(by_verdict[word])}"] if word in by_verdict else []
        halves = sorted((x.ci_high - x.ci_low) / 2 for x in study.effects if not math.isnan(x.ci_low))
        ends = dict.fromkeys(f"{x:.2g}" for x in (halves[0], halves[-1]))
        least = f"; the intervals reach {' to '.join(ends)} to each side, and hide smaller effects"
        if NO_EFFECT in by_verdict:
            lines.append(f"{NO_EFFECT}: {', '.join(by_verdict[NO_EFFECT])}{least}")
        elif study.is_sweep and not by_verdict:
            lines.append(f"{NO_EFFECT}{least}")
        lines += seeds_that_show(study, folder)
        # how it was computed
        several = study.comparisons > 1
        corrected = f", corrected for {study.comparisons} changes by Holm's method" if several else ""
        lines.append(
            f"± or [ ]: 95 % interval over {counted(study.most_seeds, 'seed')}, paired, their spread pooled over the"
            f" variants; !: it differs from 0 (5 %{corrected})"
        )
    elif study.most_seeds == 1:
        lines.append(
            "one seed: how much seeds differ is unknown, so no effect can be told from chance;"
            f" eval-shapers --extend {folder} --seeds 3 trains two more"
        )
    if any(not math.isnan(effect.slower) for effect in study.effects):
        lines.append(
            f"steps: env-steps until {100 * SHARE:.0f} % of what {study.original} learns, over its own"
            f" ({study.steps:,.0f}); >: some seeds never had it"
        )
    if any(not math.isnan(effect.share) for effect in study.effects):
        lines.append("share: of the reward at the end of training, by the sizes of the terms' means")
    zero = dict.fromkeys(effect.term for effect in study.effects if effect.share == 0)
    if zero:
        repeats = f"if it always is, its variants only repeat {study.original}"
        lines.append(f"{join_some(list(zero))}: 0 in the last evaluation; {repeats}")
    return lines


# the section of a run's page


def study_sections(all_studies: Sequence[Study], pictures: Mapping[str, bytes], folder: str = "RUN") -> list[Section]:
    """Return a section for each candidate that has variants.

    Args:
        pictures: PNG files of sweeps by the candidate's name.
    """
    parts, sections = shell.parts(), []
    for position, study in enumerate(all_studies):
        header, *rows = study_rows(study) if study.is_sweep else _term_rows(study, _with_intervals(study))
        body = Markup()
        if study.original in pictures:
            body += parts.picture(pictures[study.original], f"effects of changes of {study.original}")
        body += parts.table(header, rows, [""] * len(header))
        legend = [] if study.is_sweep else ["dot: change of fitness; line: its interval; dashed: no change"]
        body += parts.notes([*legend, *study_notes(study, folder)])
        what = "Sweep of" if study.is_sweep else "The terms of"
        sections.append(Section(f"terms-{position}", f"{what} {study.original}", body, True))
    return sections


def _with_intervals(study: Study) -> dict[str, Markup]:
    """Return the effects by candidate, as texts with pictures of their intervals."""
    intervals = {x.candidate: (x.effect, x.ci_low, x.ci_high) for x in study.effects if not math.isnan(x.effect)}
    axis, cells = Axis([*intervals.values()], 0.0), {}
    for effect, text in zip(study.effects, effect_texts(study.effects)):
        colour = "var(--soft)" if not effect.significant else "var(--good)" if effect.effect > 0 else "var(--bad)"
        drawn = effect.candidate in intervals
        picture = shell.parts().interval(axis.picture(intervals[effect.candidate]), axis, colour) if drawn else ""
        cells[effect.candidate] = Markup("{}{}").format(text, picture)
    return cells
