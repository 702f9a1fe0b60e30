# ruff: noqa: B006
"""The tools of an agent: what each does with the campaign, as data. The server makes short JSON of it.

Names, arguments and docstrings of the public methods of Tools are what an agent reads.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from envcoder_bench.core.errors import UserError, user_input
from envcoder_bench.core.files import write_atomic
from envcoder_bench.serve.campaign import DONE, QUEUED, RUNNING, Campaign, Job
from envcoder_bench.serve.intake import copies, keep, read_files
from envcoder_bench.serve.jobs import Runner, progress
from envcoder_bench.serve.texts import fault_text
from envcoder_bench.shaping.contract import Fault
from envcoder_bench.sources.registry import is_installed, task_names
from envcoder_bench.tasks.base import HUMAN

Answer = dict[str, Any]
Files = Annotated[list[str], Field(description="paths of .py files below the folder of the server")]
Sources = Annotated[dict[str, str], Field(description="or texts of candidates by name")]
# torch is imported when a tool needs it, so that the server answers its client at once
_NUMBERS = 12  # a sweep may have so many values
SEEDS_SHOWN = (3, 5, 10, 20, 50)  # ``plan`` says what each of these numbers would tell
MOST_WAIT = 50.0  # seconds: clients give up after a minute


class Tools:
    """The tools over a campaign.

    Args:
        root: the folder from which files are read.
        page: the name of a file in ``root`` that describes the task, for an agent that is not told where this program
            and the campaign are; None: ``describe`` writes it into the campaign.
    """

    def __init__(self, campaign: Campaign, root: Path, page: str | None = None) -> None:
        self.campaign, self._root, self._page = campaign, root, page
        self._alone = threading.RLock()  # of calls that simulate or read runs
        self._physics: dict[str, Any] = {}  # by task, how fast its simulation is here
        self.runner = Runner(campaign, self._finish)

    # what there is

    def tasks(self) -> Answer:
        """List the tasks, and the one of this campaign."""
        return {"tasks": task_names(), "task": self._name, **self.campaign.spent}

    def describe(self, task: str = "") -> Answer:
        """Describe a task: fitness, functions to write, keys of the state; `more` is a file with all of it."""
        name = self._task(task, chooses=False)
        with self._alone:
            from envcoder_bench.run.inputs import described
            from envcoder_bench.search.launch import DESCRIPTION, outside
            from envcoder_bench.tools.describe import render_task, task_facts

            with user_input():
                facts = task_facts(name, self.campaign.state.overrides)
            spec = outside(name, "", DESCRIPTION, self.campaign.state.overrides)  # what a search tells its model
            run = described(spec.task, spec.overrides)
            if self._page is None:
                file = self.campaign.folder / f"{Path(name).name}.md"
                write_atomic(file, f"{render_task(facts)}\n\n{spec.system(run)}\n")
                places = {"baselines": facts.baselines, "more": str(file)}
            else:
                places = {"more": self._page}
        answer: dict[str, Any] = {
            "task": facts.task,
            "summary": facts.summary,
            "fitness": facts.fitness,
            "timing": facts.timing,
        }
        types = run.config.shaper_types
        answer["functions"] = [each.name for each in facts.functions if types is None or each.name in types]
        answer["state"] = [key.key for key in facts.state]
        price = self._size(name, 1)
        return {**answer, "price_of_a_policy": price, **places}

    def check(self, files: Files = [], sources: Sources = {}, task: str = "") -> Answer:
        """Check candidates without training, in seconds: errors with line and advice, widths, notes."""
        texts, name = read_files(self._root, files, sources), self._task(task)
        with self._alone:
            from envcoder_bench.tools.check import FAILED, check_candidates

            faults = copies(self.campaign, texts, self._baselines(name))
            left = {key: text for key, text in texts.items() if key not in faults}
            rows = []
            if left:
                words = [*self.campaign.state.overrides, "untrusted=true"]
                rows = [row for row in check_candidates(name, words, left).rows if not row.baseline]
        answers: list[dict[str, Any]] = [
            {"name": key, "ok": False, "error": fault_text(fault)} for key, fault in faults.items()
        ]
        for row in rows:
            fault = row.fault
            if row.status == FAILED or fault is not None:
                answers.append({"name": row.name, "ok": False, "error": fault_text(fault or Fault("it fails"))})
                continue
            facts = {"defines": row.defines, "observation": row.obs_dim, "action": row.action_dim}
            facts.update({"left_out_by_the_config": row.unused} if row.unused else {})
            notes = [str(note.without_folders()) for note in [*row.notes, *row.not_compiled]]
            answers.append({"name": row.name, "ok": True, **facts, **({"notes": notes} if notes else {})})
        return {"ok": all(answer["ok"] for answer in answers), "files": answers}

    def plan(
        self, candidates: int = 1, seeds: int = 3, iterations: int = 0, minutes: float = 0, task: str = ""
    ) -> Answer:
        """Say what a ranking would cost, and the least difference that it would tell."""
        name = self._task(task)
        with self._alone:
            from envcoder_bench.serve.answers import detectable_by

            size = self._size(name, self._policies(candidates, seeds), iterations, minutes)
            least = detectable_by(self.campaign, sorted({seeds, *SEEDS_SHOWN}))
        unknown = "not known before the first ranking, which says how much seeds differ"
        return {**size, "detects_by_seeds": least or unknown, **self.campaign.spent}

    # jobs

    def rank(
        self,
        files: Files = [],
        sources: Sources = {},
        seeds: int = 3,
        iterations: int = 0,
        minutes: float = 0,
        question: str = "",
        task: str = "",
    ) -> Answer:
        """Train candidates with champion and baselines on new seeds. Returns a job at once; then ask status."""
        texts, name = read_files(self._root, files, sources), self._task(task)
        with self._alone:
            faults = copies(self.campaign, texts, self._baselines(name))
            if faults:
                key, fault = next(iter(faults.items()))
                raise UserError(f"{key} {fault.message}", advice=fault.remedy, file=Path(f"{key}.py"))
            size = self._size(name, self._policies(len(texts), seeds), iterations, minutes)
            left = max(0.0, self.campaign.state.budget - self.campaign.used)
            least = size["seconds"] or (size.get("seconds_expected") or [0.0])[0]
            if least > left:
                advice = "take fewer seeds, candidates or iterations"
                raise UserError(f"it would take {least:.0f} s, and {left:.0f} s of the budget are left", advice=advice)
            # in the same block: another client must not take the name between the check and the job
            return {**self._add("rank", texts, seeds, size["iterations"], question=question[:200]), **size}

    def terms(self, files: Files = [], sources: Sources = {}, seeds: int = 3, iterations: int = 0) -> Answer:
        """Train one candidate with each reward term left out, halved and doubled. Returns a job."""
        return self._variants("terms", files, sources, seeds, iterations, [])

    def sweep(
        self,
        numbers: Annotated[dict[str, list[float]], Field(description="values by name of a term or number")],
        files: Files = [],
        sources: Sources = {},
        seeds: int = 3,
        iterations: int = 0,
    ) -> Answer:
        """Train one candidate with other factors of its terms, or other numbers. Returns a job."""
        if not numbers:
            raise UserError("no numbers", advice='give values by name, {"tilt": [0, 1, 4]}')
        for name, values in numbers.items():
            words = name.split(".")
            if not all(word.isidentifier() for word in words) or "seed" in words or not 1 <= len(values) <= _NUMBERS:
                raise UserError(
                    f"{name[:60]!r} cannot be swept", advice=f"name a term or number, 1 to {_NUMBERS} values"
                )
        lines = [f"{name}={','.join(map(repr, values))}" for name, values in numbers.items()]
        return self._variants("sweep", files, sources, seeds, iterations, lines)

    def _variants(
        self, kind: Any, files: Files, sources: Sources, seeds: int, iterations: int, sweep: list[str]
    ) -> Answer:
        texts, name = read_files(self._root, files, sources), self._task("")
        if len(texts) != 1:
            raise UserError(f"{kind} takes one candidate, got {len(texts)}")
        with self._alone:
            faults = {key: x for key, x in copies(self.campaign, texts, {}).items() if x.twin == key}
            if faults:
                raise UserError(f"{next(iter(faults))}: another candidate has this name", advice="rename it")
            size = self._size(name, self._policies(1, seeds), iterations)
            return self._add(kind, texts, seeds, size["iterations"], sweep=sweep, parent=next(iter(texts)))

    def final(self, seeds: int = 10) -> Answer:
        """Train champion and human as in its ranking, on seeds of their own; one time for each N attempts."""
        self._started()
        state = self.campaign.state
        iterations = self.campaign.job(state.champion_job).iterations if state.champion_job else 0
        with self._alone:
            size = self._size(state.task, 3 * seeds, iterations)
        return self._add("final", {}, seeds, size["iterations"])

    def _add(self, kind: Any, texts: Mapping[str, str], seeds: int, iterations: int, **more: Any) -> Answer:
        """Queue a job, and keep its candidates; it cannot begin in between."""
        with self.campaign.change():
            job = self.campaign.add(kind, [*texts], seeds, iterations, **more)
            keep(self.campaign, texts)
        self.runner.wake()
        return {"job": job.name, "iterations": iterations, **self.campaign.spent}

    def status(self, job: str = "", wait: float = 0) -> Answer:
        """Say how far a job is, or the last jobs; wait up to 50 seconds for its end."""
        chosen = [self.campaign.job(job)] if job else self.campaign.state.jobs[-8:]
        until = time.monotonic() + min(max(wait, 0.0), MOST_WAIT)
        while time.monotonic() < until and any(each.status in (QUEUED, RUNNING) for each in chosen):
            time.sleep(0.1)
        return {
            "jobs": [self._status(each) for each in chosen],
            "champion": self.campaign.state.champion,
            **self.campaign.spent,
        }

    def _status(self, job: Job) -> Answer:
        facts = {"job": job.name, "kind": job.kind, "status": job.status, "seconds": round(job.seconds)}
        if job.status == RUNNING:
            event = progress(self.campaign, job)
            facts.update({key: event[key] for key in ("done", "total", "seconds_left", "best") if key in event})
        if job.status == QUEUED:
            facts["before_it"] = sum(each.status in (QUEUED, RUNNING) for each in self.campaign.state.jobs) - 1
        return {**facts, **({"error": job.error} if job.error else {})}

    def result(self, job: str) -> Answer:
        """Return the verdicts of a job that is done."""
        done = self._done(job)
        return json.loads((self.campaign.home(done) / "result.json").read_bytes()) | self.campaign.spent

    def explain(self, job: str, candidate: str, versus: str = "human") -> Answer:
        """Say where in the episode and the training two candidates differ, and what their rewards consist of."""
        done = self._done(job)
        with self._alone:
            from envcoder_bench.serve.answers import explained

            return explained(self.campaign, done, candidate, versus)

    def policy(self, job: str, candidate: str) -> Answer:
        """Return the files of a trained policy: ONNX, description, model, videos."""
        done = self._done(job)
        run = self.campaign.run(done)
        with self._alone:
            from envcoder_bench.run.folder.policies import open_run

            open_run(run).source(candidate)  # raises UserError for a name that the run does not have
        words = ["export", str(run), "--candidate", candidate, "--json"]
        process = subprocess.run(
            [sys.executable, "-m", "envcoder_bench", *words], capture_output=True, text=True, check=False, timeout=600
        )
        document = json.loads(process.stdout)
        if document["kind"] == "error":
            raise UserError(document["message"])
        videos = sorted(map(str, (run / "videos").glob("*.mp4")))
        return {"candidate": candidate, "files": document["files"], "videos": videos}

    # what they share

    def _finish(self, job: Job) -> None:
        """Judge a job whose run is complete: keep or replace the champion, and write the answer."""
        with self._alone:
            from envcoder_bench.serve.answers import best_of, effects_answer, policies_of, pool, ranked_answer

            job.policies = policies_of(self.campaign, job)
            best = best_of(self.campaign, job, pool(self.campaign)) if job.kind == "rank" else job.champion
            with self.campaign.change() as state:
                if best != job.champion:
                    state.champion, state.champion_job = best, job.name
            answer = (ranked_answer if job.kind in ("rank", "final") else effects_answer)(self.campaign, job)
            text = json.dumps(_without_nan(answer), ensure_ascii=False, allow_nan=False)
            write_atomic(self.campaign.home(job) / "result.json", text)

    def _done(self, name: str) -> Job:
        job = self.campaign.job(name)
        if job.status == DONE:
            return job
        if job.error:
            raise UserError(f"{name} failed: {job.error.get('message', '')}", advice=job.error.get("advice", ""))
        raise UserError(f"{name} is {job.status}", advice="ask for its status until it is done")

    def _task(self, task: str, chooses: bool = True) -> str:
        """Return the task, which the first call that hands in candidates chooses for the campaign."""
        chosen = self.campaign.state.task
        if chosen and task in ("", chosen, self._name):
            return chosen
        if not task:
            raise UserError("no task", advice="give one of those that the tool tasks lists")
        if chosen:
            raise UserError(f"this campaign is of {self._name}", advice=f"give {self._name}, or leave it out")
        if not is_installed(task):  # a folder or a module is code, which only the user may choose
            from envcoder_bench.run.config import find_task

            find_task(task)
            raise UserError(f"{task[:60]} is not an installed task", advice="let the user start the server with --task")
        if chooses:
            with self.campaign.change() as state:
                state.task = task
        return task

    @property
    def _name(self) -> str:
        """The campaign's task as the agent knows it: without the folders that lead to its own."""
        task = self.campaign.state.task
        return Path(task).name if self._page is not None and Path(task).is_dir() else task

    def _started(self) -> None:
        if not self.campaign.state.task:
            raise UserError("nothing was ranked yet")

    def _baselines(self, task: str) -> dict[str, str]:
        from envcoder_bench.run.config import compose_config, find_task
        from envcoder_bench.run.prepare.run_files import baseline_sources

        spec = find_task(task)
        cfg = compose_config(spec, self.campaign.state.overrides)
        return {source.name: source.source for source in baseline_sources(spec, cfg.task)}

    def _policies(self, count: int, seeds: int) -> int:
        """Return the number of policies of a ranking: those of the champion and of both baselines are among them."""
        if count < 1 or seeds < 1:
            raise UserError("candidates and seeds must be positive")
        return (count + (self.campaign.state.champion != HUMAN) + 2) * seeds

    def _size(self, task: str, policies: int, iterations: int = 0, minutes: float = 0.0) -> Answer:
        """Return policies, iterations, env-steps and seconds of a job. Raises UserError if they make no sense."""
        from envcoder_bench.run.config import compose_config

        if iterations < 0 or not 0 <= minutes < 1e5:
            raise UserError("iterations and minutes must be positive")
        cfg = compose_config(task, self.campaign.state.overrides)
        rate = self.campaign.rate
        if minutes and not iterations:
            if rate is None:
                raise UserError("the speed is not known before the first job", advice="give iterations instead")
            iterations = max(1, int(60.0 * minutes * rate / policies))
        iterations = iterations or cfg.learning_iterations
        horizon = int(cfg.params["config"].get("horizon_length", 1))
        steps = policies * iterations * horizon * cfg.num_envs_per_candidate
        size = {"policies": policies, "iterations": iterations, "env_steps": steps}
        if rate is not None:
            return {**size, "seconds": round(policies * iterations / rate)}
        return {**size, "seconds": None, "seconds_expected": self._expected(task, policies, iterations)}

    def _expected(self, task: str, policies: int, iterations: int) -> list[float] | None:
        """Return the least and the most seconds of a job, of which the first one will say more; None if unknown."""
        from envcoder_bench.run.inputs import resolve
        from envcoder_bench.run.prepare.forecast import Physics, evaluation_steps, training_seconds, training_steps
        from envcoder_bench.run.prepare.plan import MemoryPlanner

        spec = resolve(task, [*self.campaign.state.overrides, f"learning_iterations={iterations}"])
        if spec.config.device == "cpu" and task not in self._physics:
            with closing(MemoryPlanner(spec)) as planner:
                probe = planner.take_probe()
            self._physics[task] = None if probe is None else Physics.of(probe)
        cfg, physics = spec.config, self._physics.get(task)
        played = policies * evaluation_steps(cfg, physics, cfg.evaluation.final_episodes) if physics else 0.0
        expected = training_seconds(cfg, training_steps(cfg, policies), played, physics)
        return None if expected is None else [*expected]


def _without_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nan(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(each) for each in value]
    return None if isinstance(value, float) and value != value else value
