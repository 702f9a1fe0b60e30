"""What a job's run says, as data for an answer; all numbers and verdicts are those of ``results/``."""

import math
from typing import Any

from envcoder_bench.core.words import counted, number
from envcoder_bench.results.fitness_model import FitnessModel
from envcoder_bench.results.logs import Point, StepFitnessLog, read_curves, read_points
from envcoder_bench.results.pairs import BETTER, Pair, campaign_pair, least_effect
from envcoder_bench.results.ranking import Ranked
from envcoder_bench.results.statistics import look_level
from envcoder_bench.run.folder.policies import OpenedRun, open_run
from envcoder_bench.run.folder.ranked import run_model, run_studies
from envcoder_bench.serve.campaign import Campaign, Job
from envcoder_bench.serve.texts import fault_text
from envcoder_bench.tasks.base import HUMAN, UNTRAINED
from envcoder_bench.tools.pair import pair_facts


def opened(campaign: Campaign, job: Job) -> tuple[OpenedRun, FitnessModel]:
    """Return the run of a job, and what it knows of its candidates. No code of the folder is executed."""
    run = open_run(campaign.run(job))
    return run, run_model(run.folder, run.cfg, run.rows)


def compared(campaign: Campaign, job: Job, model: FitnessModel, name: str, other: str) -> Pair:
    """Return a candidate compared with another one, as one of the campaign's attempts."""
    for each in (name, other):
        if each not in model.names:
            return Pair(name, other, reason=f"{each} has no fitness")
    if job.kind == "final":
        finals = [each for each in campaign.state.jobs if each.kind == "final"]
        return campaign_pair(model, name, other, 1, 1 + finals.index(job))
    attempt = job.first + (job.candidates.index(name) if name in job.candidates else 0)
    return campaign_pair(model, name, other, campaign.state.every, 1 + attempt // campaign.state.every)


def best_of(campaign: Campaign, job: Job, model: FitnessModel) -> str:
    """Return the champion after a job: the candidate that is better than the one before, by most; else that one."""
    names = [name for name in job.candidates if name != job.champion]
    pairs = [compared(campaign, job, model, name, job.champion) for name in names]
    better = [pair for pair in pairs if pair.verdict == BETTER]
    return max(better, key=lambda pair: pair.mean).first if better else job.champion


def verdict(pair: Pair) -> dict[str, Any]:
    """Return a pair for an answer."""
    values = {"difference": pair.mean, "interval": [pair.low, pair.high], "verdict": pair.verdict}
    if pair.reason:
        return {"verdict": pair.verdict, "reason": pair.reason}
    return {**values, "seeds_needed": pair.seeds_needed} if pair.seeds_needed else values


def ranked_answer(campaign: Campaign, job: Job) -> dict[str, Any]:
    """Return the result of a job that ranks candidates, or of a final evaluation."""
    run, model = opened(campaign, job)
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
                facts["versus_champion"] = verdict(compared(campaign, job, model, name, job.champion))
            facts["versus_human"] = verdict(compared(campaign, job, model, name, HUMAN))
        candidates.append(facts)
    others = {name: rows[name].fitness for name in (HUMAN, "unshaped", UNTRAINED) if name in rows}
    answer: dict[str, Any] = {"job": job.name, "question": job.question, "champion": champion(campaign, job)}
    if job.kind == "final":
        pair = compared(campaign, job, model, job.champion, HUMAN)
        answer["final"] = f"best of {campaign.attempts}: {job.champion} is {_words(pair)} human, on seeds of its own"
    return {**answer, "candidates": candidates, "baselines": others, **spent(campaign, job)}


def _words(pair: Pair) -> str:
    return f"{pair.verdict} than" if pair.verdict in (BETTER, "worse") else "not told apart from"


def champion(campaign: Campaign, job: Job) -> dict[str, Any]:
    """Return the champion for an answer, and whether it was the champion before the job."""
    name = campaign.state.champion if campaign.state.champion_job == job.name else job.champion
    return {"name": name, "kept": name == job.champion}


def spent(campaign: Campaign, job: Job | None = None) -> dict[str, Any]:
    """Return budget and ledger for an answer, and where the files of a job are."""
    left = max(0.0, campaign.state.budget - campaign.used)
    values: dict[str, Any] = {"budget": {"used_s": round(campaign.used), "left_s": round(left)}}
    values["ledger"] = campaign.ledger
    return values if job is None else {**values, "more": str(campaign.run(job))}


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
        values["early"] = _mean([point.fitness for point in first if point.iteration == earliest])
    ended = _ended(row, course)
    remarks = [f"lost {counted(row.lost_seeds, 'seed')}"] if row.lost_seeds else []
    more = {"ended": ended, "remarks": remarks, "hacked": row.hacked}
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


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def effects_answer(campaign: Campaign, job: Job) -> dict[str, Any]:
    """Return the result of a job with variants: the effect of each change, the largest first."""
    run, _ = opened(campaign, job)
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
    return {"job": job.name, "fitness": fitness, "effects": effects, **note, **spent(campaign, job)}


def explained(campaign: Campaign, job: Job, name: str, other: str) -> dict[str, Any]:
    """Return why a candidate does better or worse than another one: course, ends, terms and functions."""
    run, model = opened(campaign, job)
    pair = run.pairs.named(name, other)  # raises UserError for a name that the run does not have
    if name in model.names and other in model.names:
        pair = compared(campaign, job, model, name, other)
    points = read_points(run.folder.points) if run.folder.points.is_file() else []
    courses = {each: course_of(points, each) for each in (name, other)}
    facts = pair_facts(run, name, other)
    kept = {key: facts[key] for key in ("each seed", "where", "functions", "hacked?") if key in facts}
    terms = {each: shares_of(points, each) for each in (name, other)}
    answer = {"candidate": name, "versus": other, **verdict(pair), **kept, "course": courses, "terms": terms}
    return {**answer, "more": str(campaign.run(job))}


def course_of(points: list[Point], name: str) -> dict[str, float]:
    """Return the mean fitness by iteration, at eight points at most."""
    by_iteration: dict[int, list[float]] = {}
    for point in points:
        if point.candidate == name:
            by_iteration.setdefault(point.iteration, []).append(point.fitness)
    iterations = sorted(by_iteration)
    kept = iterations[:: max(1, -(-len(iterations) // 8))] + iterations[-1:]
    return {str(each): _mean(by_iteration[each]) for each in kept}


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


def detectable(campaign: Campaign, seeds: int) -> float:
    """Return the difference that so many seeds would tell, by the last ranking; NaN before any."""
    for job in reversed(campaign.state.jobs):
        if job.kind == "rank" and job.status == "done" and job.seeds > 1:
            _, model = opened(campaign, job)
            names = [name for name in job.candidates if name in model.names]
            if names and job.champion in model.names:
                level = look_level(1 + campaign.attempts // campaign.state.every) / campaign.state.every
                return least_effect(model.difference(names[0], job.champion), seeds, level)
    return math.nan


def policies_of(campaign: Campaign, job: Job) -> int:
    """Return how many policies a job has trained."""
    return sum(row.env_steps > 0 for row in open_run(campaign.run(job)).rows if row.candidate != UNTRAINED)
