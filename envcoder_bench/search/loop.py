"""The search loop: propose, check, repair and train candidates round by round; it can be resumed at any time."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from envcoder_bench.core.errors import Stopped, UserError
from envcoder_bench.core.shell import quoted
from envcoder_bench.core.words import counted
from envcoder_bench.report.page.run import PageVideos
from envcoder_bench.results.ranking import Ranked
from envcoder_bench.run.evaluate import evaluate, resume
from envcoder_bench.run.fitness import fitness_bounds
from envcoder_bench.run.folder.policies import open_run
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.run.lint import Verdict, judge_run
from envcoder_bench.run.prepare.run_files import baseline_sources
from envcoder_bench.run.result import RunResult
from envcoder_bench.run.seeds import seed_count
from envcoder_bench.run.spec import RunConfig, RunSpec
from envcoder_bench.search import screen
from envcoder_bench.search.archive import Archive, Attempt, Proposer, write_archive
from envcoder_bench.search.folder import Round, SearchFolder
from envcoder_bench.search.forecast import time_left
from envcoder_bench.search.llm import LLMProposer
from envcoder_bench.search.report import SearchFacts, best_facts, write_report
from envcoder_bench.search.rounds import Checker, check_and_repair, record_again, record_round
from envcoder_bench.search.screen import View
from envcoder_bench.search.settings import MODEL, MOST_ROUNDS, SearchSettings
from envcoder_bench.search.terms import term_variants
from envcoder_bench.video import default_videos
from envcoder_bench.video.page import make_videos, read_videos


@dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    Attributes:
        best: name of the best candidate; empty if none could be trained.
        stopped: the incomplete run if the search was stopped; None if it is complete.
        command: the command that resumes the search.
    """

    best: str
    stopped: RunResult | None
    command: str


class Search:
    """A search in its folder, new or resumed.

    Args:
        spec: its runs; each round has its own seeds, from the config's ``seed`` on.
        proposer: None if no round is left to be proposed.
        writer: name of the proposer for messages.
        facts: what the report says beside the results.
    """

    def __init__(
        self,
        folder: SearchFolder,
        settings: SearchSettings,
        spec: RunSpec,
        overrides: Sequence[str],
        proposer: Proposer | None,
        writer: str,
        facts: SearchFacts,
        view: View,
    ) -> None:
        self._folder, self._settings, self._overrides = folder, settings, list(overrides)
        self._spec, self._cfg = spec, spec.config
        self._proposer, self._writer, self._facts, self._view = proposer, writer, facts, view
        self._archive = folder.read_archive()
        if not self._archive.baselines:
            sources = baseline_sources(spec.task, spec.config.task)
            self._archive = Archive([], {b.name: Attempt(b.name, 0, b.source) for b in sources})
        self._archive.reference = self._cfg.baseline
        self._archive.bounds = fitness_bounds(spec.task, self._cfg)
        self._archive.episodes = int(self._cfg.evaluation.final_episodes)

    def run(self) -> SearchResult:
        """Run the remaining rounds and the final evaluation.

        Raises:
            UserError: if the search cannot continue for now.
            Stopped: on KeyboardInterrupt, unless a wave of a run is training.
        """
        say = self._view.say
        try:
            for number in range(1, self._settings.num_iters + 1):
                round = self._folder.read_round(number)
                # a resumed search goes on behind the last step that is on disk: candidates, or results
                if round is None or not self._archive.of_round(number):
                    began = time.monotonic()
                    say(f"\nround {number} of {self._settings.num_iters}")
                    round = round or self._candidates(number)
                    say(screen.candidates(round))
                    ready = time.monotonic()
                    result = self._train(round)
                    if result is not None and not result.complete:
                        return self._ended(result)
                    took = ready - began, time.monotonic() - ready
                    left = time_left(self._cfg, self._settings, number, *took)
                    say(f"{screen.best_so_far(self._archive)}\n{screen.times(*took, left)}")
                if round.stopped:
                    say(f"no more rounds: {round.stopped}")
                    break
            return self._finish()
        except UserError as error:
            raise UserError(f"{error}; nothing is lost, resume with{_flags(error)}: {self._folder.command}") from error
        except KeyboardInterrupt:
            raise Stopped(f"stopped; resume with: {self._folder.command}", self._folder.path) from None

    def _ended(self, stopped: RunResult | None = None) -> SearchResult:
        best = self._archive.best()
        return SearchResult("" if best is None else best.name, stopped, self._folder.command)

    def _candidates(self, number: int) -> Round:
        """Propose, check and repair the candidates of a round."""
        assert self._proposer is not None
        count = self._settings.shapers_per_iter
        # the last names of a round are variants of the best so far, which cost no request
        wanted = self._settings.term_variants
        variants = term_variants(self._archive, number, count, wanted, self._cfg.shaper_types)
        if wanted and number > 1 and not variants:
            self._view.say("no variants of terms: the best so far has no reward terms that were not varied")
        self._view.say(f"{self._writer} writes {counted(count - len(variants), 'candidate')}")
        proposals = self._proposer.propose(self._archive, number, count - len(variants))
        proposals += variants
        first = self._cfg.seed + (number - 1) * seed_count(self._cfg)
        checker = Checker(self._folder, self._spec.changed(seed=first), self._archive)
        round = check_and_repair(number, proposals, self._proposer, self._archive, checker, self._settings.repair)
        if isinstance(self._proposer, LLMProposer):
            round.usage, round.stopped = self._proposer.usage, self._proposer.stopped
            self._view.say(screen.spending(round.usage, self._proposer.spent))
        self._folder.write_round(round)
        return round

    def _train(self, round: Round) -> RunResult | None:
        """Train a round's candidates with the baselines and the best so far, and record the results."""
        result = None
        if round.ready:
            names = [proposal.name for proposal in round.ready]
            # the best so far train again: the seeds of one round are too few to tell candidates apart
            names += [leader.name for leader in self._archive.leaders(self._settings.retrained)]
            first = self._cfg.seed + (round.number - 1) * seed_count(self._cfg)
            result = self._evaluate(self._folder.run(round.number), names, [f"seed={first}", "save_state=false"])
            if not result.complete:
                return result
        noted = ([], [], [], {})
        if result is not None:
            noted = (result.rows, result.evaluations(), result.courses(), self._verdicts(round))
        self._archive = record_round(self._archive, round, *noted)
        write_archive(self._folder.archive, self._archive)
        self._report()
        if result is not None:
            self._view.say(f"\n{screen.ranking(result.ranked)}\n")
        return result

    def _verdicts(self, round: Round) -> dict[str, Verdict]:
        """Return what the lint says of the rewards of a round that has trained, by candidate."""
        run = open_run(self._folder.run(round.number).path)
        return judge_run(run.folder, run.spec, [proposal.name for proposal in round.ready])

    def _evaluate(self, run: RunFolder, names: Sequence[str], overrides: Sequence[str]) -> RunResult:
        """Start or resume a run; read the result of a complete one."""
        view = self._view
        self._folder.clear_unfinished(run)
        if run.config.is_file():
            return resume(run.path, reporter=view.reporter, stop=view.stop)
        wandb = self._cfg.wandb  # all runs of the search are in one group
        group = [f"wandb.group={quoted(self._folder.path.name)}"] if wandb.enabled and wandb.group is None else []
        return evaluate(
            self._spec.task,
            [self._folder.candidate(name) for name in names],
            overrides=[*self._overrides, *overrides, *group],
            output_dir=run.path,
            reporter=view.reporter,
            stop=view.stop,
        )

    def _validate(self) -> RunResult | None:
        """Compare the best of all rounds with seeds that no round had, and record it; None without a choice."""
        settings, again = self._settings, RunFolder(self._folder.validation)
        leaders = [leader.name for leader in self._archive.leaders(settings.validated)]
        # a search of an earlier version may have had its final evaluation without it
        if not again.config.is_file() and (len(leaders) < 2 or RunFolder(self._folder.final).config.is_file()):
            return None
        first, count = self._after_rounds, settings.validation_seeds
        self._view.say(f"\nvalidation: the best {len(leaders)}, trained again with {_seeds(first, count)}")
        overrides = [f"seed={first}", f"seeds={count}", "race.enabled=false", "baselines=false", "save_state=false"]
        result = self._evaluate(again, leaders, overrides)
        if result.complete:
            self._archive = record_again(self._archive, result.rows)
            write_archive(self._folder.archive, self._archive)
            self._view.say(f"\n{screen.ranking(result.ranked)}\n\n{screen.best_so_far(self._archive)}")
        return result

    @property
    def _after_rounds(self) -> int:
        """The first seed that neither a round has, of however many, nor what came after fewer rounds before."""
        return after_rounds(self._cfg, self._settings, self._folder.endings)

    def _finish(self) -> SearchResult:
        """Choose among the best, and train the chosen one with both baselines, with seeds that were not seen before."""
        say = self._view.say
        validation = self._validate()
        if validation is not None and not validation.complete:
            return self._ended(validation)
        best = self._archive.best()
        if best is None:
            say("no candidate could be trained; see the errors above")
            return self._ended()
        if not self._settings.final_seeds:
            self._report()
            return self._ended()
        # a candidate is chosen for its luck, too, so that its own seeds would flatter it
        first = self._after_rounds + self._settings.validation_seeds
        count, episodes = self._settings.final_seeds, self._settings.final_episodes
        overrides = [f"seed={first}", f"seeds={count}", f"evaluation.final_episodes={episodes}", "race.enabled=false"]
        say(f"\nfinal evaluation: {best.name} and both baselines, trained again with {_seeds(first, count)}")
        result = self._evaluate(RunFolder(self._folder.final), [best.name], overrides)
        if not result.complete:
            return self._ended(result)
        self._view.show(result)
        say(screen.verdict(result.ranked, best.name))
        paths = self._report(result.ranked)
        say(screen.paths([self._folder.best, *paths, self._folder.path]))
        return self._ended()

    def _report(self, final: Sequence[Ranked] = ()) -> list[Any]:
        rounds = [self._folder.read_round(number) for number in range(1, self._settings.num_iters + 1)]
        done = [round for round in rounds if round is not None]
        best = self._archive.best()
        facts = replace(
            self._facts,
            # rounds of evolution have no requests
            usage={round.number: round.usage for round in done if round.usage.requests},
            stopped=next((round.stopped for round in done if round.stopped), ""),
            final=final,
            final_note=screen.verdict(final, best.name) if final and best is not None else "",
        )
        self._folder.write_best(self._archive, best_facts(self._archive, self._folder.path.name, facts))
        return write_report(self._folder.path, self._archive, facts, self._videos() if final else None)

    def _videos(self) -> PageVideos:
        """Return the videos of the final evaluation, which are made once."""
        count, run = default_videos(), open_run(self._folder.final)
        return (read_videos(run) if count != 0 else None) or make_videos(run, count)


def after_rounds(cfg: RunConfig, settings: SearchSettings, endings: int) -> int:
    """Return the first seed of validation and final evaluation; ``endings`` have been before, after fewer rounds."""
    return cfg.seed + MOST_ROUNDS * seed_count(cfg) + endings * (settings.validation_seeds + settings.final_seeds)


def _seeds(first: int, count: int) -> str:
    return f"seeds {first} to {first + count - 1}" if count > 1 else f"seed {first}"


def _flags(error: UserError) -> str:
    """Return the flags that an error names and a resumed search may change: `` another --temperature``."""
    flags = [f"--{name}" for name in MODEL if re.search(rf"--{name}\b(?! replay:)", str(error))]
    return f" another {' or '.join(flags)}" if flags else ""
