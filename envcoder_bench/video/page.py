"""The page of a run folder, ``report.html``, with videos of its best policies."""

import json
import logging
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.files import read_json, write_atomic
from envcoder_bench.core.settings import dotted, plain, select
from envcoder_bench.core.shell import display_path
from envcoder_bench.core.words import counted, duration, format_fitness, number
from envcoder_bench.report.page.run import PageCandidate, PageEpisode, PageVideos, RunPage, render_page
from envcoder_bench.report.page.shell import PAGE, Section
from envcoder_bench.report.stress_plot import stress_sections
from envcoder_bench.report.terms.table import study_lead, study_sections
from envcoder_bench.results.logs import StepFitnessLog, read_curves
from envcoder_bench.results.ranking import Ranked, entrants
from envcoder_bench.results.stress import read_stress
from envcoder_bench.run.folder.policies import OpenedRun, load_policy, median_seed, open_run
from envcoder_bench.run.folder.ranked import picture, run_studies, variants_in
from envcoder_bench.run.inputs import resolve
from envcoder_bench.run.lint import Verdict, judge_run
from envcoder_bench.run.seeds import seed_count
from envcoder_bench.shaping.discovery import name_fault
from envcoder_bench.shaping.kinds import ALIASES
from envcoder_bench.shaping.text import definitions, describe_definitions
from envcoder_bench.shaping.variants import asking_words
from envcoder_bench.sources.registry import is_installed
from envcoder_bench.tasks.base import BASELINES, HUMAN, UNTRAINED
from envcoder_bench.trainers.registry import CONFIGS
from envcoder_bench.video.record import Player, model_bytes, record
from envcoder_bench.video.recording import Episode, Recording
from envcoder_bench.video.render import Look, NoVideo, missing, poster, render

VIDEOS = "videos"  # the folder with the mp4 files
VIDEOS_NOTE = "videos.json"  # the file in VIDEOS with their length and the page's note
RECORDING = "recording.npz"  # the file in VIDEOS with the recorded states
DEFAULT_VIDEOS = 3
CLIP = Look(seconds=5.0, fps=15, limit=20.0, fast=True, seeds=True, posters=True)
MOST_TIMES = 300  # most points of an episode's lines on the page
_PPO = ("horizon_length", "minibatch_size", "mini_epochs", "learning_rate", "gamma", "tau", "e_clip")
_SAC = ("env_steps_per_update", "batch_size", "learning_rate", "gamma", "n_step", "replay_buffer_size")
NOT_EXECUTED = (
    "envcoder-bench report RUN --video K executes the code of the run's candidates and task, and this page did not"
)
log = logging.getLogger(__name__)


def write_page(folder: Path, videos: int | None = None, executes: bool = True) -> Path:
    """Write the page of a complete run.

    Videos that cannot be made are not an error: the page says why.

    Args:
        videos: the number of best candidates to show, besides both baselines; 0 for no videos, None for
            DEFAULT_VIDEOS where frames can be rendered.
        executes: whether to execute the code of the candidates and the task, to make videos and judge rewards. If not,
            the page has the videos that the run already has.

    Returns:
        The file.

    Raises:
        UserError: the folder does not contain a run with results.
    """
    run = open_run(folder)
    path = run.folder.path / PAGE
    if executes:
        _ = run.spec  # raises before anything is written if the task cannot be built
        section = make_videos(run, videos)
    elif videos == 0:
        section = make_videos(run, 0)
    else:
        section = read_videos(run) or PageVideos(note=f"No videos: {NOT_EXECUTED}.")
    write_atomic(path, render_page(_page(run, section, executes)))
    return path


def _stress_sections(run: OpenedRun) -> list[Section]:
    """Return the section on stress, if it was measured."""
    try:
        stress = read_stress(run.folder.path)
    except ValueError as error:
        log.warning("%s", error)
        return []
    return stress_sections(stress, [row.candidate for row in run.ranked], run.cfg.task_title)


def chosen(ranked: Sequence[Ranked], count: int) -> list[str]:
    """Return the names of the best ``count`` candidates with a fitness and of the baselines, best first."""
    # the untrained policy has no file
    playable = [row for row in ranked if row.rank is not None and row.candidate != UNTRAINED]
    best = [row.candidate for row in playable if not row.baseline][:count]
    return best + [row.candidate for row in playable if row.baseline]


def make_videos(run: OpenedRun, count: int | None) -> PageVideos:
    """Make the videos of a page; ``count`` means the same as ``videos`` of ``write_page``."""
    if count == 0:
        return PageVideos(note="No videos were asked for: eval-shapers --video K makes those of the best K candidates.")
    reason = missing()
    if reason:
        log.info("no videos: %s", reason)
        return PageVideos(note=f"No videos: {reason}.")
    try:
        return _record_videos(run, chosen(run.ranked, DEFAULT_VIDEOS if count is None else count))
    except Exception as error:  # a picture must not cost a result
        log.warning("videos: %s", error, exc_info=not isinstance(error, (UserError, NoVideo)))
        return PageVideos(note=f"No videos: {error}.")


def _record_videos(run: OpenedRun, names: Sequence[str]) -> PageVideos:
    if not names:
        return PageVideos(note="No videos: no candidate has a fitness.")
    log.info("videos of %s", ", ".join(names))
    players = [player(run, name) for name in names]
    recording = record(run.spec, players)
    folder = run.folder.path / VIDEOS
    folder.mkdir(exist_ok=True)
    recording.save(folder / RECORDING)
    files = [folder / f"{episode.name}.mp4" for episode in recording.episodes]
    note = (
        f"One episode of each candidate{_name_policy(run)} in the unshaped task, replayed in MuJoCo on the CPU with the"
        f" random numbers of the evaluation's first episode{', and the same start' if recording.same_start else ''}."
        " Lines show the whole episode: the fitness so far, and the candidate's own reward components. Click a line to"
        " go to its time."
    )
    try:
        seconds = render(recording, model_bytes(run.spec, recording), files, CLIP)
        note += _describe_length(seconds, [episode.steps * recording.dt for episode in recording.episodes])
    except NoVideo as error:
        seconds = []
        note += f" No videos: {error}."
    # the page is useful without videos, too: it shows lines and says why videos are missing
    note += "".join(f" {name} could not be played: {error}." for name, error in recording.failed.items())
    write_atomic(folder / VIDEOS_NOTE, json.dumps({"seconds": seconds, "note": note}) + "\n")
    return _pack_videos(run, recording, seconds, note)


def _name_policy(run: OpenedRun) -> str:
    return "'s policy of the median seed" if seed_count(run.cfg) > 1 else "'s policy"


def _describe_length(seconds: Sequence[float], lengths: Sequence[float]) -> str:
    """Return a sentence on the length of the videos; empty if they show whole episodes.

    Args:
        seconds, lengths: lengths of the videos and of their episodes, s.
    """
    limit = CLIP.seconds or max(lengths)
    cut = sorted(drawn for drawn, length in zip(seconds, lengths) if drawn < min(length, limit) - 1 / CLIP.fps)
    if cut:
        ends = dict.fromkeys(number(x, 2) for x in (cut[0], cut[-1]))
        return (
            f" Drawing is slow on this machine, so that {counted(len(cut), 'video')} of {len(seconds)} end after"
            f" {' to '.join(ends)} s; envcoder-bench play draws whole episodes."
        )
    return "" if max(lengths) <= limit else f" Videos show the first {number(limit)} s."


def _pack_videos(run: OpenedRun, recording: Recording, seconds: Sequence[float], note: str) -> PageVideos:
    """Return the episodes of a recording, with the files of their videos unless ``seconds`` is empty."""
    episodes = []
    for episode, length in zip(recording.episodes, seconds or [0.0] * len(recording.episodes)):
        file = run.folder.path / VIDEOS / f"{episode.name}.mp4"
        page_episode = _episode(run, recording, episode)
        if seconds:
            still = poster(file).read_bytes()
            page_episode = replace(page_episode, mp4=file.read_bytes(), seconds=length, poster=still)
        episodes.append(page_episode)
    return PageVideos(episodes, note)


def read_videos(run: OpenedRun) -> PageVideos | None:
    """Return the videos that a run's page already has; None if it has none, or a file is damaged."""
    folder = run.folder.path
    if not (folder / VIDEOS / VIDEOS_NOTE).is_file():
        return None
    try:
        note = read_json(folder / VIDEOS / VIDEOS_NOTE)
        recording = Recording.load(folder / VIDEOS / RECORDING)
        faults = list(filter(None, (name_fault(episode.name) for episode in recording.episodes)))
        if faults:  # names of files
            raise ValueError(faults[0])
        return _pack_videos(run, recording, list(map(float, note["seconds"])), str(note["note"]))
    except Exception as error:  # a damaged file may raise anything, and must not cost a page
        log.warning("the videos in %s cannot be read: %s", folder / VIDEOS, error)
        return None


def page_videos(folder: Path) -> dict[str, Path]:
    """Return the video files of a run's page by candidate."""
    try:
        recording = Recording.load(folder / VIDEOS / RECORDING)
    except (OSError, ValueError):  # absent or damaged
        return {}
    files = {episode.name: folder / VIDEOS / f"{episode.name}.mp4" for episode in recording.episodes}
    return {name: file for name, file in files.items() if file.is_file()}


def player(run: OpenedRun, name: str, seed: int | None = None) -> Player:
    """Return a candidate's policy as a player; ``seed`` None means the median seed."""
    policy = load_policy(run, name, median_seed(run, name) if seed is None else seed)
    return Player(name, policy.seed, policy)


def seed_text(run: OpenedRun, name: str, seed: int) -> str:
    """Describe a policy's seed among those of its candidate, e.g. ``seed 3, the median of 8``."""
    measured = sorted((row.fitness, row.seed) for row in run.rows if row.candidate == name and row.measured)
    if len(measured) < 2:
        return f"seed {seed}"
    special = {"median": median_seed(run, name), "best": measured[-1][1], "worst": measured[0][1]}
    rank = next((word for word, number in special.items() if number == seed), "")
    return f"seed {seed}, {'the ' + rank + ' of' if rank else 'one of'} {len(measured)}"


def _episode(run: OpenedRun, recording: Recording, episode: Episode) -> PageEpisode:
    every = max(1, episode.steps // MOST_TIMES)
    at = np.unique(np.append(np.arange(0, episode.steps, every), episode.steps - 1))
    lines = {"fitness so far": recording.so_far(episode, episode.steps)[at].tolist()}
    parts = episode.components or {"reward": episode.reward}
    lines.update({name: values[at].tolist() for name, values in parts.items()})
    ended = f", {episode.ended} after {episode.steps * recording.dt:.1f} s" if episode.ended else ""
    seed = seed_text(run, episode.name, episode.seed)
    summary = f"{seed}: fitness {format_fitness(recording.episode_fitness(episode))}{ended}"
    return PageEpisode(episode.name, None, summary, ((at + 1) * recording.dt).tolist(), lines)


def _page(run: OpenedRun, videos: PageVideos, executes: bool) -> RunPage:
    cfg, folder, ranked = run.cfg, run.folder, run.ranked
    studies = run_studies(run.folder, run.cfg, [*run.sources.values()], run.rows)
    variants = {effect.candidate for study in studies for effect in study.effects}
    files = {study.original: run.folder.path / picture(study) for study in studies}
    pictures = {name: file.read_bytes() for name, file in files.items() if file.is_file()}
    return RunPage(
        title=f"{cfg.task_title}: {entrants((row.candidate for row in ranked), variants)}",
        fitness_meaning=run.fitness_meaning,
        ranked=ranked,
        candidates=_candidates(run, executes),
        facts=_facts(run),
        curves=read_curves(folder.curves) if folder.curves.is_file() else None,
        components=read_curves(folder.components) if folder.components.is_file() else None,
        step_fitness=(
            read_curves(folder.step_fitness, StepFitnessLog.columns) if folder.step_fitness.is_file() else None
        ),
        videos=videos,
        how=_how(run),
        command=_command(run) if executes or is_installed(run.cfg.address) else "",
        sections=[*study_sections(studies, pictures, display_path(folder.path)), *_stress_sections(run)],
        lead=study_lead(studies, display_path(folder.path)),
        folder=display_path(folder.path),
        pairs=None if studies else run.pairs,  # a variant is compared with its original only
        best=not studies,
        final=cfg.learning_iterations,
    )


def _facts(run: OpenedRun) -> list[str]:
    summary, cfg, begun = run.folder.recorded, run.cfg, run.folder.begun
    facts = [begun[:16].replace("T", " ")] if begun else []
    facts += [str(run.folder.software.get("device") or cfg.device)]
    facts += [counted(seed_count(cfg), "seed"), f"{counted(cfg.num_envs_per_candidate, 'environment')} each"]
    facts += [counted(cfg.learning_iterations, "iteration")]
    if summary.get("wall_time"):
        facts += [f"trained for {duration(summary['wall_time'])}"]
    if summary.get("env_steps"):
        facts += [f"{summary['env_steps']:,} env-steps"]
    return facts


def _candidates(run: OpenedRun, executes: bool) -> list[PageCandidate]:
    names = [row.candidate for row in run.ranked if not row.baseline]
    verdicts = judge_run(run.folder, run.spec, names) if executes else dict.fromkeys(names, Verdict([], NOT_EXECUTED))
    variants = variants_in([*run.sources.values()])
    human = run.sources.get(HUMAN)
    candidates = []
    for name, source in run.sources.items():
        defined = definitions(source.source)
        # the functions that are used
        kinds = list(defined.names)
        taken = [k for k in kinds if run.cfg.shaper_types is None or ALIASES.get(k, k) in run.cfg.shaper_types]
        facts = {"its functions": describe_definitions(defined, taken if name not in BASELINES else kinds)}
        if name not in BASELINES:
            facts["other functions"] = f"of the {run.cfg.baseline} baseline"
            if set(kinds) - set(taken):
                facts["not used"] = ", ".join(k for k in kinds if k not in taken)
        # the page compares its text with a variant's original, or else with the human baseline
        against = None
        original = run.sources.get(variants[name].original) if name in variants else None
        if original is not None:
            against = (original.name, original.source)
        elif human is not None and name not in BASELINES:
            against = (HUMAN, human.source)
        # remarks on its reward, from the trajectories of the baselines
        verdict = verdicts.get(name)
        if verdict is not None and verdict.not_judged:
            facts["reward not judged on trajectories"] = verdict.not_judged
        remarks = () if verdict is None else verdict.remarks
        candidates.append(PageCandidate(name, source.file, source.source, facts, against, remarks))
    # the untrained policy is ranked, too, but does not have a file
    if any(row.candidate == UNTRAINED for row in run.rows):
        facts = {"policy": f"before the first iteration, with the observation and action of the {HUMAN} baseline"}
        candidates.append(PageCandidate(UNTRAINED, "", None, facts))
    return candidates


def _how(run: OpenedRun) -> dict[str, str]:
    cfg, summary = run.cfg, run.folder.recorded
    how = {key: str(value) for key, value in run.folder.software.items() if value}
    how["simulator"] = f"{cfg.sim} on {cfg.device}"
    speed, memory = summary.get("env_steps_per_second"), summary.get("memory") or {}
    if speed:
        how["speed"] = f"{speed:,.0f} env-steps/s, all candidates together"
    if memory.get("waves"):
        how["waves"] = str(memory["waves"])
    if "race" in summary:
        alive = ", ".join(map(str, summary["race"]["alive"]))
        how["race"] = f"{alive} candidates, {summary['race']['env_steps_share']:.0%} of the env-steps of a run without"
    settings: Any = select(cfg.train, "params.config", {})
    learner, keys = ("FlashSAC", _SAC) if select(cfg.train, "params.algo.name") in CONFIGS else ("PPO", _PPO)
    how[learner] = ", ".join(f"{key} {settings[key]}" for key in keys if key in settings)
    how["run folder"] = run.folder.path.name
    return how


def _command(run: OpenedRun) -> str:
    """Return a command that repeats the run, from the values that differ from the defaults."""
    cfg = run.cfg
    words = ["eval-shapers", "--task", cfg.address]
    variants = variants_in([*run.sources.values()])
    files = [source.file for name, source in run.sources.items() if name not in (*BASELINES, *variants)]
    words += ["--candidates", *files] if files else []
    words += asking_words(variants)
    try:
        usual = dotted(resolve(cfg.address).config.plain())
    except (UserError, ValueError, KeyError):
        return ""
    # only values that differ from the task's defaults
    used = dotted(cfg.plain())
    hidden = ("candidates", "task_source", "task.name", "sim", "device", "train.params.config.device")
    for key, value in used.items():
        if key in hidden or key.startswith("candidates.") or usual.get(key, None) == value:
            continue
        words.append(f"{key}={value if isinstance(value, str) else json.dumps(plain(value))}")
    words += [f"sim={cfg.sim}", f"device={cfg.device}"]
    return " ".join(shlex.quote(word) for word in words)
