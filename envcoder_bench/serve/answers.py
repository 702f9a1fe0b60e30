"""What a job's run says, as data for an answer; all numbers and verdicts are those of ``results/``."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from envcoder_bench.core.words import counted, number
from envcoder_bench.results.campaigns import candidate_level, detectable, pooled_pair
from envcoder_bench.results.fitness_model import FitnessModel
from envcoder_bench.results.logs import Point, StepFitnessLog, read_courses, read_curves, read_points
from envcoder_bench.results.pairs import BETTER, Pair, campaign_pair
from envcoder_bench.results.ranking import Ranked, fitness_model
from envcoder_bench.results.statistics import look_level, mean_or_nan
from envcoder_bench.run.folder.policies import OpenedRun, open_run
from envcoder_bench.run.folder.ranked import bounds_of, final_evaluation, run_studies
from envcoder_bench.serve.campaign import DONE, Campaign, Job
from envcoder_bench.serve.texts import fault_text
from envcoder_bench.tasks.base import HUMAN, UNTRAINED
from envcoder_bench.tools.pair import pair_facts

Pool = Callable[[Sequence[Job]], FitnessModel]


def opened(campaign: Campaign, job: Job) -> OpenedRun:
    """Return the run of a job. No code of the folder is executed."""
    return open_run(campaign.run(job))


def pool(campaign: Campaign) -> Pool:
    """Return the function that returns what the runs of several jobs know together; each run is read once."""
    opened_once = functools.cache(lambda name: opened(campaign, campaign.job(name)))

    def model(jobs: Sequence[Job]) -> FitnessModel:
        runs = [opened_once(job.name) for job in jobs]
        evaluations = [final_evaluation(run.folder, run.cfg) for run in runs]
        together = dict(item for each in evaluations if each for item in each.items())
        rows = [row for run in runs for row in run.rows]
        return fitness_model(rows, bounds_of(runs[0].folder, runs[0].cfg), None if None in evaluations else together)

    return model


def compared(campaign: Campaign, job: Job, name: str, other: str, models: Pool) -> Pair:
    """Return a candidate of a job compared with another one, by all seeds of equal rankings."""
    model = models([job])
    for each in (name, other):
        if each not in model.names:
            return Pair(name, other, reason=f"{each} has no fitness")
    if job.kind == "final":
        finals = [each for each in campaign.state.jobs if each.kind == "final"]
        return campaign_pair(model, name, other, look_level(1 + finals.index(job)))
    rankings = campaign.rankings(job)
    ranked = [each for each in rankings if name in each.candidates]
    names = [*dict.fromkeys(each for ranking in rankings for each in ranking.candidates)]
    level = candidate_level(names.index(name) if name in names else len(names), campaign.state.every)
    equal = [each for each in ranked if each.iterations == job.iterations and other in (HUMAN, each.champion)]
    jobs = equal if job in equal and other in (HUMAN, job.champion) else [job]
    pooled, seeds = (sum(each.seeds for each in some) for some in (jobs, ranked))
    return pooled_pair(models(jobs), name, other, level, job.seeds, pooled, max(job.seeds, seeds))


def best_of(campaign: Campaign, job: Job, models: Pool) -> str:
    """Return the champion after a job: the candidate that is better than the one before, by most; else that one."""
    names = [name for name in job.candidates if name != job.champion]
    pairs = [compared(campaign, job, name, job.champion, models) for name in names]
    better = [pair for pair in pairs if pair.verdict == BETTER]
    return max(better, key=lambda pair: pair.mean).first if better else job.champion


def verdict(pair: Pair) -> dict[str, Any]:
    """Return a pair for an answer."""
    values = {"difference": pair.mean, "interval": [pair.low, pair.high], "verdict": pair.verdict}
    if pair.reason:
        return {"verdict": pair.verdict, "reason": pair.reason}
    more = {"more_seeds": max(1, pair.seeds_needed - pair.seeds)} if pair.seeds_needed and pair.mean > 0 else {}
    return {**values, "seeds": pair.seeds, **more}


def ranked_answer(campaign: Campaign, job: Job) -> dict[str, Any]:
    """Return the result of a job that ranks candidates, or of a final evaluation."""
    run, models = opened(campaign, job), pool(campaign)
    rows = {row.candidate: row for row in run.ranked}
    points = read_points(run.folder.points) if run.folder.points.is_file() else []
    course = read_curves(run.folder.step_fitness, StepFitnessLog.columns) if run.folder.step_fitness.is_file() else None
    candidates = []
    for row in sorted(run.ranked, key=lambda row: row.rank or math.inf):
        name = row.candidate
        if name not in job.candidates:
            continue
        facts = facts_of(row, points, course)
        if row.rank is not None:
            if job.kind == "rank" and job.champion not in (HUMAN, name):
                facts["versus_champion"] = verdict(compared(campaign, job, name, job.champion, models))
            facts["versus_human"] = verdict(compared(campaign, job, name, HUMAN, models))
        candidates.append(facts)
    others = {name: rows[name].fitness for name in (HUMAN, "unshaped", UNTRAINED) if name in rows}
    answer: dict[str, Any] = {"job": job.name, "question": job.question, "champion": champion(campaign, job)}
    if job.kind == "final":
        pair = compared(campaign, job, job.champion, HUMAN, models)
        answer["final"] = f"best of {campaign.attempts}: {job.champion} is {_words(pair)} human, on seeds of its own"
    return {**answer, "candidates": candidates, "baselines": others, **campaign.spent, "more": str(campaign.run(job))}


def _words(pair: Pair) -> str:
    return f"{pair.verdict} than" if pair.verdict in (BETTER, "worse") else "not told apart from"


def champion(campaign: Campaign, job: Job) -> dict[str, Any]:
    """Return the champion for an answer, and whether it was the champion before the job."""
    name = campaign.state.champion if campaign.state.champion_job == job.name else job.champion
    return {"name": name, "kept": name == job.champion}


def facts_of(row: Ranked, points: list[Point], course: Any) -> dict[str, Any]:
    """Return what a run says of a candidate alone."""
    if row.rank is None:
        return {"name": row.candidate, "status": row.status, "error": fault_text(row.fault) if row.fault else {}}
    values: dict[str, Any] = {
        "name": row.candidate,
        "fitness": row.fitness,
        "interval": [row.fitness_ci_low, row.fitness_ci_high],
        "seeds": len(row.seeds),
    }
    first = [point for point in points if point.candidate == row.candidate]
    if first:
        earliest = min(point.iteration for point in first)
        values["at_first_evaluation"] = mean_or_nan([point.fitness for point in first if point.iteration == earliest])
    ended = _ended(row, course)
    notes = [f"lost {counted(row.lost_seeds, 'seed')}"] if row.lost_seeds else []
    more = {"ended": "; ".join(filter(None, [ended, row.ended])), "notes": notes, "hacked": row.hacked}
    values.update({key: value for key, value in more.items() if value})
    return {**values, "error": fault_text(row.fault)} if row.fault else values


def _ended(row: Ranked, course: Any) -> str:
    """Return how many episodes end early, and when half of these have ended; empty if none does."""
    if course is None:
        return ""
    mine = course[course["candidate"] == row.candidate]
    mine = mine[mine["iteration"] == mine["iteration"].max()].groupby("step")[["seconds", "active"]].mean()
    if mine.empty or mine["active"].iloc[-1] >= 0.995:
        return ""
    early = 1.0 - mine["active"].iloc[-1]
    half = mine[mine["active"] <= 1.0 - early / 2]["seconds"].iloc[0]
    return f"{round(early * row.episodes)} of {row.episodes} episodes end early, half of them by {number(half, 2)} s"


def effects_answer(campaign: Campaign, job: Job) -> dict[str, Any]:
    """Return the result of a job with variants: the effect of each change, the largest first."""
    run = opened(campaign, job)
    studies = run_studies(run.folder, run.cfg, [*run.sources.values()], run.rows)
    rows = [effect for study in studies for effect in study.effects]
    rows.sort(key=lambda effect: -abs(effect.effect) if effect.effect == effect.effect else 1.0)
    effects = [
        {
            "change": effect.what,
            "effect": effect.effect,
            "interval": [effect.ci_low, effect.ci_high],
            "verdict": (BETTER if effect.effect > 0 else "worse") if effect.significant else "cannot tell",
            **({"status": effect.status} if effect.status else {}),
        }
        for effect in rows
    ]
    fitness = {study.original: study.fitness for study in studies}
    seeds = next((study.seeds_needed for study in studies if study.seeds_needed), None)
    note = {"seeds_for_effects_that_matter": seeds} if seeds else {}
    return {
        "job": job.name,
        "fitness": fitness,
        "effects": effects,
        **note,
        **campaign.spent,
        "more": str(campaign.run(job)),
    }


def explained(campaign: Campaign, job: Job, name: str, other: str) -> dict[str, Any]:
    """Return why a candidate does better or worse than another one: course, ends, terms and functions."""
    run = opened(campaign, job)
    run.pairs.named(name, other)  # raises UserError for a name that the run does not have
    pair = compared(campaign, job, name, other, pool(campaign))
    points = read_points(run.folder.points) if run.folder.points.is_file() else []
    courses = {each: course_of(points, each) for each in (name, other)}
    facts = pair_facts(run, name, other)
    kept = {key: facts[key] for key in ("each seed", "where", "functions", "hacked?") if key in facts}
    parts = {"course": courses, "tenths": tenths_of(run, (name, other))}
    parts["ends"] = {row.candidate: row.ended for row in run.ranked if row.candidate in (name, other) and row.ended}
    parts["terms"] = {each: shares for each in (name, other) if (shares := shares_of(points, each))}
    answer = {"candidate": name, "versus": other, **verdict(pair), **kept}
    return {**answer, **{key: part for key, part in parts.items() if part}, "more": str(campaign.run(job))}


def course_of(points: list[Point], name: str) -> dict[str, float]:
    """Return the mean fitness by iteration, at eight points at most."""
    by_iteration: dict[int, list[float]] = {}
    for point in points:
        if point.candidate == name:
            by_iteration.setdefault(point.iteration, []).append(point.fitness)
    iterations = sorted(by_iteration)
    kept = iterations[:: max(1, -(-len(iterations) // 8))] + iterations[-1:]
    return {str(each): mean_or_nan(by_iteration[each]) for each in kept}


def tenths_of(run: OpenedRun, names: Sequence[str]) -> dict[str, list[float]]:
    """Return the mean fitness of a step in each tenth of the episode; empty without a record."""
    if not run.folder.step_fitness.is_file():
        return {}
    courses = [course for course in read_courses(run.folder.step_fitness) if course.candidate in names]
    by_name = {name: [course.fitness for course in courses if course.candidate == name] for name in names}
    return {name: [mean_or_nan([*tenth]) for tenth in zip(*of_seeds)] for name, of_seeds in by_name.items() if of_seeds}


def shares_of(points: list[Point], name: str) -> dict[str, float]:
    """Return the share of each term in the sizes of all terms, in the last evaluation."""
    last = max((point.iteration for point in points if point.candidate == name), default=0)
    sizes: dict[str, float] = {}
    for point in points:
        if point.candidate == name and point.iteration == last:
            for term, spread in point.components.items():
                if term != "total reward":
                    sizes[term] = sizes.get(term, 0.0) + abs(spread[0])
    total = sum(sizes.values())
    return {term: size / total for term, size in sorted(sizes.items(), key=lambda x: -x[1])[:8]} if total else {}


def detectable_by(campaign: Campaign, counts: Sequence[int]) -> dict[str, float]:
    """Return the difference of a new candidate that so many seeds tell, by the last ranking; empty before any.

    NaN where it would be larger than the range of the fitness.
    """
    for job in reversed(campaign.state.jobs):
        if job.kind == "rank" and job.status == DONE and job.seeds > 1:
            model, run = pool(campaign)([job]), opened(campaign, job)
            others = [name for name in job.candidates if name in model.names and name != job.champion]
            if others and job.champion in model.names:
                differences = sorted(model.differences(job.champion, others), key=lambda each: each.error)
                level = candidate_level(campaign.candidates, campaign.state.every)
                middle = differences[len(differences) // 2]
                low, high = bounds_of(run.folder, run.cfg)
                least = {str(seeds): detectable(middle, level, seeds) for seeds in counts}
                return {seeds: gain if gain < high - low else math.nan for seeds, gain in least.items()}
    return {}


def policies_of(campaign: Campaign, job: Job) -> int:
    """Return how many policies a job has trained."""
    return sum(row.env_steps > 0 for row in open_run(campaign.run(job)).rows if row.candidate != UNTRAINED)
