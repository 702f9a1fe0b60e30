"""A search by an agent: it has the tools of ``envcoder-bench mcp`` for a time, then the harness chooses.

::

    agents/TASK/K/
        session.json       seconds and characters so far, and how it ended
        campaign/          the state of the tools, see serve/campaign.py
        transcript.jsonl   every call with its answer
        agent.log          what the agent's command printed
    searches/TASK/K/       what it ranked, as a search: archive, validation and report

The agent's command runs in a folder elsewhere, with ``TASK.md``, ``DESCRIPTION.md`` and ``mcp.json`` alone. The harness
counts the time and what passes the tools; what an agent thinks, reads and writes elsewhere it cannot count.
"""

import contextlib
import errno
import json
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from envcoder_bench import __version__
from envcoder_bench.core.errors import UserError
from envcoder_bench.core.files import digest, file_digest, write_atomic
from envcoder_bench.core.folders import PACKAGE
from envcoder_bench.results.rows import FAILED_AT_LOAD
from envcoder_bench.run.folder.policies import open_run
from envcoder_bench.run.inputs import described
from envcoder_bench.run.lint import judge_run
from envcoder_bench.run.prepare.run_files import baseline_sources
from envcoder_bench.score.protocol import AGENT_MINUTES, AGENT_TOKENS, CANARY, VALIDATION_SEEDS, ScoredTask
from envcoder_bench.search import launch
from envcoder_bench.search.archive import Archive, Attempt, Proposal, proposal_name, write_archive
from envcoder_bench.search.folder import Round
from envcoder_bench.search.llm import Usage
from envcoder_bench.search.rounds import record_again, record_round
from envcoder_bench.search.screen import View
from envcoder_bench.search.spec import SearchSpec
from envcoder_bench.serve.campaign import DONE, QUEUED, RUNNING, Campaign, Job, State
from envcoder_bench.serve.server import INSTALL, TOOLS, served
from envcoder_bench.serve.tools import Tools

CHARACTERS = 4  # a token has about so many
SAVE_SECONDS, POLL_SECONDS, STOP_SECONDS = 5.0, 0.1, 10.0
LEFT, TIME, TOKENS = "it left", "the time was over", "the tokens were used up"  # how a session ends
# without seeds that the harness holds, and without files that a search does not need
TOOLS_GIVEN = tuple(name for name in TOOLS if name not in ("final", "policy"))
# variables of this process, which say where the repository or the score is
_HIDDEN = {"PYTHONPATH", "VIRTUAL_ENV", "PWD", "OLDPWD"}
_MARK = "ENVCODER_BENCH_AGENT"  # a variable of all processes of an agent
_PAGE = "DESCRIPTION.md"
_TASK = (
    "The policy should: {description}. You write the functions that shape its training, in Python; DESCRIPTION.md says"
    " which, and what the state holds. You have {minutes:.0f} minutes and {tokens:,} tokens of calls and answers.",
    "Use the tools of the server `envcoder-bench` in mcp.json: `check`, `plan`, `rank`, `status`, `result` and others."
    " Give texts, or write files in this folder and give their names.",
    "`rank` trains candidates. Those count that are ranked with the default number of iterations, and done in time."
    " When you have ended or the time is over, the best of them train again with other seeds, which choose one. What"
    " you ranked is the only thing that counts: policies, files and what you say are not read.",
)
_AGAIN = "This session was interrupted. `status` says what was ranked before."


@dataclass
class Session:
    """How far an agent's session is.

    Attributes:
        seconds: during which it had the tools.
        read, written: characters of answers, and of calls.
        ended: how it ended; empty before.
        mark: by which the processes of its agent are found, also by a later process of the score.
        chain: SHA-256 of that of all lines of the transcript but the last, and of the last.
        sources: SHA-256 of the candidates that were ranked, by name.
    """

    seconds: float = 0.0
    calls: int = 0
    read: int = 0
    written: int = 0
    starts: int = 0
    ended: str = ""
    mark: str = field(default_factory=lambda: secrets.token_hex(16))
    chain: str = ""
    sources: dict[str, str] = field(default_factory=dict)

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return 60.0 * AGENT_MINUTES - self.seconds

    @property
    def tokens(self) -> int:
        """Tokens of calls and answers, estimated from their characters."""
        return (self.read + self.written) // CHARACTERS


_SESSION = TypeAdapter(Session)


@dataclass
class AgentSearch:
    """The inputs of an agent's search.

    Attributes:
        home, search: the folders of its session, and of the search that is made of it.
        seed: the first of its seeds.
        words: ``key=value`` of all runs of the task.
        more: further ``key=value`` of the search.
    """

    home: Path
    search: Path
    model: str
    command: str
    task: ScoredTask
    seed: int
    words: Sequence[str]
    more: Sequence[str] = ()
    session: Session = field(default_factory=Session)
    lock: Any = field(default_factory=threading.RLock)  # of the session, which calls and the clock change

    def __post_init__(self) -> None:
        if self._file.is_file():
            self.session = _SESSION.validate_json(self._file.read_bytes())

    @property
    def _file(self) -> Path:
        return self.home / "session.json"

    @property
    def transcript(self) -> Path:
        return self.home / "transcript.jsonl"

    @cached_property
    def campaign(self) -> Campaign:
        """The state of its tools. It is read one time, as an agent may write to its files."""
        state = State(task=self.task.address, overrides=[*self.words], next_seed=self.seed, every=10**6)
        return Campaign(self.home / "campaign", state)

    def save(self) -> None:
        with self.lock:
            write_atomic(self._file, _SESSION.dump_json(self.session, indent=1) + b"\n")

    def run(self, view: View) -> bool:
        """Run what is left of it; return whether it is finished. Raises UserError if the agent cannot start."""
        plays = not self.session.ended
        if plays and not self._play(view):
            return False
        if plays or not (self.search / "config.yaml").is_file():
            self._record()  # also in the place of what its agent has written there
        return launch.resume(self.search, view).stopped is None

    @property
    def seconds(self) -> float:
        """Seconds that its rankings took."""
        return self.campaign.used

    # the session

    def _play(self, view: View) -> bool:
        """Let the agent work until it leaves or its limits are reached; return False if ``view`` stops it."""
        session, campaign = self.session, self.campaign
        desk = Path(tempfile.mkdtemp(prefix="agent_"))
        tools = Tools(campaign, desk.resolve(), _PAGE)
        session.starts += 1
        self._cut_transcript()
        session.chain = reduce(chained, self._lines(), "")  # a killed score may not have noted the last line
        self.save()
        end_agent(session.mark)  # a killed score may have left it
        try:
            with view.stop, served(tools, self.home, _Meter(self, campaign), TOOLS_GIVEN) as (address, token):
                tools.runner.start()
                agent = None
                try:
                    self._furnish(desk, address, token)
                    agent = start_agent(self.command, desk, self.home / "agent.log", session.mark)
                    self._wait(agent, campaign, view)
                finally:
                    end_agent(session.mark, agent)
                    tools.runner.stop()
        finally:
            shutil.rmtree(desk, ignore_errors=True)
            self.save()
        return bool(session.ended)

    def _furnish(self, desk: Path, address: str, token: str) -> None:
        """Write the agent's task, what a model reads of it, and how to reach its tools, into its folder."""
        server = {"type": "http", "url": address, "headers": {"Authorization": f"Bearer {token}"}}
        write_atomic(desk / "mcp.json", json.dumps({"mcpServers": {"envcoder-bench": server}}, indent=1))
        limits = {"minutes": self.session.left / 60, "tokens": AGENT_TOKENS - self.session.tokens}
        parts = [part.format(description=self.task.description, **limits) for part in _TASK]
        parts += [_AGAIN] if self.session.calls else []
        texts = [f"# {self.task.name}", *(textwrap.fill(part, 110, break_on_hyphens=False) for part in parts)]
        write_atomic(desk / "TASK.md", "\n\n".join(texts) + "\n")
        spec = self._search([])
        write_atomic(desk / _PAGE, spec.system(described(spec.task, spec.overrides)) + "\n")

    def _search(self, words: Sequence[str]) -> SearchSpec:
        """Return the inputs of the search that is made of it."""
        words = [*words, f"seed={self.seed}", *self.words, *self.more]
        return launch.outside(self.task.address, self.model, self.task.description, words)

    def _wait(self, agent: subprocess.Popen, campaign: Campaign, view: View) -> None:
        session, saved = self.session, time.monotonic()
        last = saved
        while view.stop.by is None:
            time.sleep(POLL_SECONDS)
            now = time.monotonic()
            session.seconds, last = session.seconds + now - last, now
            if now - saved > SAVE_SECONDS:
                self.save()
                saved = now
            code = agent.poll()
            if code and not session.calls:
                raise UserError(f"--agent ended with exit code {code} before any call: see {self.home / 'agent.log'}")
            # what was handed in before it left is still trained
            pending = any(job.status in (QUEUED, RUNNING) for job in campaign.state.jobs)
            if code is not None and not pending:
                session.ended = LEFT
            elif session.left <= 0:
                session.ended = TIME
            elif session.tokens >= AGENT_TOKENS and not pending:
                session.ended = TOKENS
            if session.ended:
                return

    # what it ranked, as a search

    def _lines(self) -> list[str]:
        return self.transcript.read_text(encoding="utf-8").splitlines() if self.transcript.is_file() else []

    def _cut_transcript(self) -> None:
        """Remove an incomplete last line, which a killed score may have left."""
        if self.transcript.is_file():
            os.truncate(self.transcript, self.transcript.read_bytes().rfind(b"\n") + 1)

    def _refuse_changed(self) -> None:
        """Raise UserError if the transcript, or a candidate that was ranked, is not as it passed the tools."""
        files = {self.campaign.source(name): before for name, before in self.session.sources.items()}
        changed = [file for file, before in files.items() if not file.is_file() or file_digest(file) != before]
        changed += [self.transcript] if reduce(chained, self._lines(), "") != self.session.chain else []
        if changed:
            raise UserError(f"{changed[0]} was changed while the agent worked: the search does not count")

    def _record(self) -> None:
        """Write the folder of the search."""
        self._refuse_changed()
        jobs = [job for job in self.campaign.state.jobs if job.kind == "rank" and job.status == DONE]
        spec = described(self.task.address, self.words)
        size, sources = spec.config.learning_iterations, baseline_sources(spec.task, spec.config.task)
        archive = Archive([], {source.name: Attempt(source.name, 0, source.source) for source in sources})
        part = self.search.with_name(f"{self.search.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        names: dict[str, str] = {}  # names of the agent -> those in the archive
        rounds: list[Round] = []
        # a candidate that was ranked with another number of iterations alone is that of a race that stopped it
        for job in sorted(jobs, key=lambda job: job.iterations != size):
            archive, round = self._add(archive, job, len(rounds) + 1, names, job.iterations == size)
            rounds += [round] if round is not None else []
        rounds = rounds or [Round(1)]
        rounds[0].usage = Usage(
            self.session.calls, self.session.read // CHARACTERS, self.session.written // CHARACTERS, None
        )
        settings = [f"num_iters={len(rounds)}", f"validation_seeds={VALIDATION_SEEDS}", "final_seeds=0", "seeds=1"]
        spec = self._search(settings)
        spec = replace(spec, settings=spec.settings.model_copy(update={"num_iters": len(rounds)}))
        folder = launch.adopt(spec, part)
        for round in rounds:
            folder.write_sources([*round.ready, *(proposal for proposal, _, _ in round.failed)])
            folder.write_round(round)
        write_archive(folder.archive, archive)
        if self.transcript.is_file():
            shutil.copy(self.transcript, folder.transcript)
        shutil.rmtree(self.search, ignore_errors=True)
        part.rename(self.search)

    def _add(
        self, archive: Archive, job: Job, number: int, names: dict[str, str], whole: bool
    ) -> tuple[Archive, Round | None]:
        """Return the archive with a ranking, and the round that it is; None without new candidates."""
        campaign = self.campaign
        run = open_run(campaign.run(job))
        run.folder.refuse_changed(run.folder.results)
        rows = run.rows
        new = [name for name in job.candidates if name not in names]
        names.update({name: proposal_name(number, k) for k, name in enumerate(new)})
        if not whole:
            rows = [replace(row, stopped_at=job.iterations) for row in rows if row.candidate in new]
        rows = [replace(row, candidate=names.get(row.candidate, row.candidate)) for row in rows]
        if not new:
            return (record_again(archive, rows) if whole else archive), None
        round, faults = Round(number), {row.candidate: row.fault for row in rows if row.status == FAILED_AT_LOAD}
        for name in new:
            source = campaign.source(name).read_text(encoding="utf-8")
            proposal = Proposal(names[name], source, (), f"{name}, ranked by {job.name}")
            fault = faults.get(proposal.name)
            if fault is None:
                round.ready.append(proposal)
            else:
                round.failed.append((proposal, FAILED_AT_LOAD, fault.without_folders()))
        judged = judge_run(run.folder, run.spec, new)
        twins = {
            names[name]: replace(verdict, same_as=names.get(verdict.same_as, verdict.same_as))
            for name, verdict in judged.items()
        }
        return record_round(archive, round, rows, verdicts=twins), round


@dataclass
class _Meter:
    """Counts and records the calls of an agent, and refuses those beyond its limits; see ``serve.server.Watch``."""

    search: AgentSearch
    campaign: Campaign

    def before(self) -> None:
        session = self.search.session
        if session.left <= 0 or session.tokens >= AGENT_TOKENS:
            what = "time is over" if session.left <= 0 else f"{AGENT_TOKENS:,} tokens are used up"
            raise UserError(f"the {what}", advice="what you ranked counts")
        with self.campaign.change() as state:  # a ranking must end in the time that is left
            state.budget = self.campaign.used + session.left

    def after(self, tool: str, arguments: Mapping[str, Any], answer: str) -> str:
        answer = answer.replace(f"{self.search.home.parents[2]}/", "")  # the score has the held-out seeds
        session, text = self.search.session, json.dumps(arguments, ensure_ascii=False)
        record: dict[str, Any] = {"type": "call", "second": round(session.seconds, 1), "tool": tool}
        record |= {"arguments": json.loads(text), "answer": answer}
        job = json.loads(answer).get("job")
        if tool == "rank" and job is not None:
            names = self.campaign.job(job).candidates
            record["sources"] = {name: self.campaign.source(name).read_text("utf-8") for name in names}
            session.sources |= {name: file_digest(self.campaign.source(name)) for name in names}
        with self.search.lock:
            session.calls, session.read = session.calls + 1, session.read + len(answer)
            session.written += len(text)
            records = [record] if session.chain else [self._header(), record]
            lines = [json.dumps(each, ensure_ascii=True) for each in records]
            session.chain = reduce(chained, lines, session.chain)
            with open(self.search.transcript, "a", encoding="utf-8") as out:
                out.writelines(f"{line}\n" for line in lines)
            self.search.save()
        return answer

    def _header(self) -> dict[str, Any]:
        meta = {"model": self.search.model, "task": self.search.task.name, "canary": CANARY}
        return {"type": "header", "format": 1, "version": __version__, "meta": meta}


def chained(before: str, line: str) -> str:
    """Return the SHA-256 of that of the lines before, and of a line."""
    return digest(f"{before}{line}")


def agent_command(command: str) -> str:
    """Return the command of an agent for any working folder. Raises UserError for one that cannot start."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UserError(f"--agent {command}: {error}") from None
    if not words:
        raise UserError("--budget agent needs --agent COMMAND, which starts the agent; see docs/score_model.md")
    program = shutil.which(words[0])
    if program is None:
        raise UserError(f"--agent: {words[0]} is not a command on this machine")
    if find_spec("mcp") is None:
        raise UserError(f"--budget agent needs the package mcp: {INSTALL}")
    return shlex.join([os.path.abspath(program), *words[1:]])


def start_agent(command: str, desk: Path, log: Path, mark: str) -> subprocess.Popen:
    """Start the command of an agent in its folder. Raises UserError if it cannot be started."""
    env = {name: value for name, value in os.environ.items() if name not in _HIDDEN}
    hidden = [PACKAGE.parent, *([Path(sys.prefix)] if sys.prefix != sys.base_prefix else [])]
    folders = env.get("PATH", os.defpath).split(os.pathsep)
    env["PATH"] = os.pathsep.join(x for x in folders if not any(Path(x).is_relative_to(y) for y in hidden))
    words = shlex.split(command)
    with open(log, "ab") as out:
        try:
            return subprocess.Popen(
                words,
                cwd=desk,
                env={**env, _MARK: mark},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # the terminal's Ctrl-C is for the score
            )
        except OSError as error:
            advice = "; a script begins with a line such as #!/bin/sh" if error.errno == errno.ENOEXEC else ""
            raise UserError(f"--agent: {words[0]} cannot be started: {error.strerror}{advice}") from error


def end_agent(mark: str, agent: subprocess.Popen | None = None) -> None:
    """End an agent and all that it started, except for processes that have hidden its mark in sessions of their own."""
    for sent in (signal.SIGTERM, signal.SIGKILL):
        if agent is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(agent.pid, sent)
        told, until = set(), time.monotonic() + STOP_SECONDS
        while (running := _marked(mark)) or (agent is not None and agent.poll() is None):
            if time.monotonic() > until:
                break
            for pid in running - told:
                with contextlib.suppress(OSError):
                    os.kill(pid, sent)
            told |= running
            time.sleep(POLL_SECONDS)


def _marked(mark: str) -> set[int]:
    """Return the processes that were started with the mark of an agent and have not ended."""
    text, pids = f"{_MARK}={mark}".encode(), set()
    for file in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if text in file.read_bytes().split(b"\0"):
                pids.add(int(file.parent.name))
    return pids
