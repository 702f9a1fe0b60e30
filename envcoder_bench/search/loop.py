"""The outer loop: propose, check, mend, train, learn from it; round after round, resumable at any moment."""

from __future__ import annotations

import contextlib
import io
import time
from dataclasses import asdict
from typing import Any, Mapping, Sequence

from omegaconf import DictConfig

from envcoder_bench.core.errors import UserError
from envcoder_bench.report.ranking import Ranked, rank
from envcoder_bench.report.results import read_results
from envcoder_bench.report.words import counted
from envcoder_bench.run import evaluate
from envcoder_bench.run.folder import RunFolder
from envcoder_bench.run.prepare import baseline_sources
from envcoder_bench.search import screen
from envcoder_bench.search.folder import Round, SearchFolder
from envcoder_bench.search.llm import LLMProposer
from envcoder_bench.search.records import Archive, Attempt, Proposer
from envcoder_bench.search.report import write_report
from envcoder_bench.search.rounds import Checker, check_and_mend, recorded
from envcoder_bench.search.screen import say


class Search:
    """A search in its folder, from where it is to its end.

    Args:
        settings: of cfg/auto_shape.yaml, with the user's overrides.
        cfg: the config of its runs; each round has seeds of its own, from ``cfg.seed`` on.
        overrides: the same as words.
        proposer: None where no round is left to be proposed.
        asked: who proposes, for the user to read.
        about: what the report says of the search.
    """

    def __init__(
        self,
        folder: SearchFolder,
        settings: DictConfig,
        cfg: DictConfig,
        overrides: Sequence[str],
        proposer: Proposer | None,
        asked: str,
        about: Mapping[str, Any],
    ) -> None:
        self._folder, self._settings, self._cfg, self._overrides = folder, settings, cfg, list(overrides)
        self._proposer, self._asked, self._about = proposer, asked, dict(about)
        self._archive = folder.read_archive()
        if not self._archive.baselines:
            sources = baseline_sources(cfg.task.name)
            self._archive = Archive([], {b.name: Attempt(b.name, 0, b.source) for b in sources})
        self._archive.reference = cfg.baseline

    def see_through(self) -> int:
        """Play what is left of the rounds, and hold the best against the baselines.

        Returns:
            The exit code: 0 there is a best candidate, 1 there is none, else 128 and the signal that stopped it.
        """
        try:
            for number in range(1, self._settings.num_iters + 1):
                round = self._folder.read_round(number)
                if round is None or not self._archive.of_round(number):
                    began = time.monotonic()
                    say(f"\nround {number} of {self._settings.num_iters}")
                    round = round or self._candidates(number)
                    say(screen.candidates(round))
                    ready = time.monotonic()
                    code = self._train(round)
                    if code >= 128:
                        return code
                    say(f"{screen.standing(self._archive)}\n{screen.times(ready - began, time.monotonic() - ready)}")
                if round.stopped:
                    say(f"no more rounds: {round.stopped}")
                    break
            return self._finish()
        except UserError as error:
            raise UserError(f"{error}; nothing is lost, go on with: {self._folder.command}") from error
        except KeyboardInterrupt:
            say(f"\nstopped; go on with: {self._folder.command}")
            return 130

    def _candidates(self, number: int) -> Round:
        """Propose, check and mend the candidates of a round."""
        assert self._proposer is not None
        count = self._settings.shapers_per_iter
        say(f"{self._asked} writes {counted(count, 'candidate')}")
        proposals = self._proposer.propose(self._archive, number, count)
        cfg = self._cfg.copy()
        cfg.seed += (number - 1) * cfg.seeds
        checker = Checker(self._folder, cfg, self._archive)
        round = check_and_mend(number, proposals, self._proposer, self._archive, checker, self._settings.repair)
        if isinstance(self._proposer, LLMProposer):
            round.usage, round.stopped = self._proposer.usage, self._proposer.stopped
            say(screen.spending(round.usage, self._proposer.spent))
        self._folder.write_round(round)
        return round

    def _train(self, round: Round) -> int:
        """Train a round's candidates with the baselines and the best so far; returns the run's exit code."""
        run, code = self._folder.run(round.number), 0
        if round.ready:
            names = [proposal.name for proposal in round.ready]
            best = self._archive.best()
            if best is not None:
                names.append(best.name)
            first = self._cfg.seed + (round.number - 1) * self._cfg.seeds
            with contextlib.redirect_stdout(io.StringIO()):  # its ranking is shown in short
                code = self._evaluate(run, names, [f"seed={first}"])
        if code < 128:
            self._archive = recorded(self._archive, round, run.path)
            self._folder.write_archive(self._archive)
            self._report()
            if round.ready:
                say(f"\n{screen.ranking(rank(read_results(run.results)))}\n")
        return code

    def _evaluate(self, run: RunFolder, names: Sequence[str], overrides: Sequence[str]) -> int:
        """Begin a run, or go on with it; one that is complete is shown again. Returns the exit code."""
        command = self._folder.command
        self._folder.clear_unfinished(run)
        if run.config.is_file():
            return evaluate.resume(run.path, command)
        return evaluate.start(
            task=self._cfg.task.name,
            overrides=[*self._overrides, *overrides],
            candidates=[self._folder.candidate(name) for name in names],
            output_dir=run.path,
            command=command,
        )

    def _finish(self) -> int:
        """Train the best anew with seeds that no round had, beside both baselines."""
        best, cfg = self._archive.best(), self._cfg
        if best is None:
            say("no candidate could be trained; see the errors above")
            return 1
        first = cfg.seed + self._settings.num_iters * cfg.seeds
        count, episodes = self._settings.final_seeds, self._settings.final_episodes
        overrides = [f"seed={first}", f"seeds={count}", f"evaluation.final_episodes={episodes}"]
        seeds = f"seeds {first} to {first + count - 1}" if count > 1 else f"seed {first}"
        say(f"\nfinal evaluation: {best.name} and both baselines, trained anew with {seeds}")
        run = RunFolder(self._folder.final)
        code = self._evaluate(run, [best.name], overrides)
        if code >= 128:
            return code
        ranked = rank(read_results(run.results))
        say(screen.verdict(ranked, best.name))
        paths = self._report(ranked)
        say(screen.paths([self._folder.best, *paths, self._folder.path]))
        return 0

    def _report(self, final: Sequence[Ranked] = ()) -> list[Any]:
        rounds = [self._folder.read_round(number) for number in range(1, self._settings.num_iters + 1)]
        usage = [{"round": r.number, **asdict(r.usage)} for r in rounds if r is not None and r.usage.requests]
        meta: dict[str, Any] = {**self._about, "usage": usage}
        meta["stopped"] = next((r.stopped for r in rounds if r is not None and r.stopped), "")
        if final:
            meta["final"] = [
                {
                    "name": row.candidate,
                    "fitness": row.fitness,
                    "ci_low": row.fitness_ci_low,
                    "ci_high": row.fitness_ci_high,
                    "episodes": row.episodes,
                    "seeds": len(row.seeds),
                }
                for row in final
            ]
            best = self._archive.best()
            meta["final_note"] = screen.verdict(final, best.name) if best is not None else ""
        return write_report(self._folder.path, self._archive, meta)
