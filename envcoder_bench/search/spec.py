"""The inputs of a search, and what is made of them: config, provider, prompts and proposer."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from envcoder_bench.core.errors import UserError, user_input
from envcoder_bench.core.words import counted
from envcoder_bench.jail.probing import confinement
from envcoder_bench.run.config_checks import check_training, check_values
from envcoder_bench.run.fitness import fitness_meaning
from envcoder_bench.run.inputs import described, resolve
from envcoder_bench.run.prepare.forecast import Physics
from envcoder_bench.run.prepare.groups import prepare
from envcoder_bench.run.prepare.plan import MemoryPlanner, multiprocessors
from envcoder_bench.run.prepare.run_files import baseline_sources
from envcoder_bench.run.seeds import Load, most_seeds, seed_count, settle_seeds
from envcoder_bench.run.spec import AUTO, RunConfig, RunSpec
from envcoder_bench.run.workers.devices import requested_devices, use_this_machine
from envcoder_bench.search.archive import Archive, Attempt, Proposer
from envcoder_bench.search.evolve import EvolveProposer
from envcoder_bench.search.forecast import cost_line, time_line
from envcoder_bench.search.llm import LLMProposer
from envcoder_bench.search.prompt.prompts import Prompts, system_prompt
from envcoder_bench.search.providers.base import Message, Provider, Request
from envcoder_bench.search.providers.budget import Budget
from envcoder_bench.search.providers.choice import RANDOM, WITHOUT_MODEL, kind_of, make_provider
from envcoder_bench.search.providers.transcript import ReplayProvider, Transcript
from envcoder_bench.search.screen import View
from envcoder_bench.search.settings import MOST_ROUNDS, SearchSettings
from envcoder_bench.tasks.base import BASELINE_FILES
from envcoder_bench.tasks.contract import task_contract
from envcoder_bench.tasks.spec import TaskSpec
from envcoder_bench.trainers.base import widest


@dataclass(frozen=True)
class SearchSpec:
    """The inputs of a search.

    Attributes:
        task: the task.
        llm, task_description, base_url: arguments of ``start``.
        templates: texts of the prompt's templates by name.
        starts: sources of the candidates to begin with by name.
    """

    task: TaskSpec
    llm: str
    task_description: str
    base_url: str | None
    settings: SearchSettings
    overrides: list[str]
    templates: Mapping[str, str]
    starts: Mapping[str, str]

    def described(self) -> RunSpec:
        """Return the description of its runs, without candidates; runs no code of the task. Raises UserError."""
        if len(self.starts) > self.settings.shapers_per_iter:
            limit = self.settings.shapers_per_iter
            files = counted(len(self.starts), "file")
            raise UserError(f"--candidates gives {files}, and a round has {limit} (--shapers_per_iter)")
        if self.llm == RANDOM and self.settings.term_variants:
            raise UserError("term_variants vary the best candidate, and --llm random does not select: leave them out")
        spec = described(self.task, self.overrides)
        cfg = spec.config
        if not cfg.baselines:
            raise UserError("baselines=false: a search trains both baselines in every round")
        first = cfg.seed + MOST_ROUNDS * seed_count(cfg) + self.settings.validation_seeds
        check_values(cfg.model_copy(update={"seed": first, "seeds": max(1, self.settings.final_seeds)}))
        check_training(spec)
        # candidates are checked in this process, wherever they train
        return replace(spec, config=use_this_machine(cfg))

    def run(self) -> RunSpec:
        """Return ``described``. Raises UserError, too, if the task's code fails."""
        spec = self.described()
        with user_input():
            spec.try_code()
        return spec

    def settle_seeds(self) -> str:
        """Replace ``seeds=auto`` by a number for all rounds, in ``overrides``; return the sentence for the user.

        A round has its candidates, both baselines and the best so far, all taken to be as wide as the baselines.
        """
        spec = resolve(self.task, self.overrides)
        cfg = spec.config
        if cfg.seeds != AUTO:
            return ""
        devices = _num_devices(cfg)
        here = replace(spec, config=use_this_machine(cfg))
        with contextlib.ExitStack() as stack:
            load = self._load_of_a_round(here, devices, stack)
            seeds, line = settle_seeds(cfg, load, devices, multiprocessors(here.config.device))
        self.overrides.append(f"seeds={seeds}")
        return line

    def _load_of_a_round(self, spec: RunSpec, devices: int, stack: contextlib.ExitStack) -> Callable[[int], Load]:
        """Return what a device trains in a round, by number of seeds."""
        count = self.settings.shapers_per_iter
        names = [str(k) for k in range(count + len(BASELINE_FILES) + min(self.settings.retrained, count))]
        if most_seeds(spec.config) == 1:  # or the devices are those of other machines, whose memory is unknown
            return lambda seeds: Load(-(-len(names) * seeds // devices), 1)
        with user_input():
            planner = MemoryPlanner(spec)
        stack.callback(planner.close)
        trusted = replace(
            spec.changed(untrusted=False), sources=tuple(baseline_sources(spec.task, spec.config.task)), fitness=None
        )
        groups, _ = prepare(trusted, planner.take_probe())
        widths = dict.fromkeys(names, widest(group.widths for group in groups))
        return lambda seeds: planner.load(widths, seeds, devices)

    def provider(self, view: View) -> Provider | None:
        """Return the model's provider; None for evolve and random. Raises UserError, for instance for a missing key."""
        if kind_of(self.llm) in WITHOUT_MODEL:
            return None
        return make_provider(self.llm, self.base_url, float(self.settings.reply_timeout), view.say)

    def budget(self) -> Budget:
        return Budget(self.settings.max_tokens, self.settings.max_cost)

    def meta(self, spec: RunSpec) -> dict[str, Any]:
        """Return the inputs that must agree for a transcript to be reused."""
        cfg = spec.config
        kinds = None if cfg.shaper_types is None else list(cfg.shaper_types)
        return {
            "task": self.task.name,
            "task_description": self.task_description,
            "shaper_types": kinds,
            "baseline": cfg.baseline,
            "fitness": fitness_meaning(spec),
        }

    def prompts(self, spec: RunSpec) -> Prompts:
        """Return the prompts. Raises UserError for an invalid template or a limit that is too low for this task."""
        rounds, limit = self.settings.num_iters, self.settings.prompt.max_chars
        return Prompts(self.templates, self.system(spec), rounds, limit, self.task_description)

    def system(self, spec: RunSpec) -> str:
        """Return what every request says of the task. Raises UserError for an invalid template."""
        meta = self.meta(spec)
        facts = (self.task_description, meta["fitness"], meta["shaper_types"])
        with user_input():  # creates the task
            return system_prompt(self.templates, spec, *facts, self.settings.show_baseline)

    def evolve(self, spec: RunSpec) -> EvolveProposer:
        parents, selection = list(self.settings.parents), self.llm != RANDOM
        state = task_contract(spec.task, spec.config.task).state
        return EvolveProposer(self.meta(spec)["shaper_types"], self.starts, spec.config.seed, parents, selection, state)

    def check(self, spec: RunSpec, provider: Provider | None) -> dict[str, str]:
        """Raise UserError for errors that would otherwise occur in the course of the search.

        Returns:
            What it will cost and how long it will take, by name.
        """
        expected: dict[str, str] = {}
        prompts = self.prompts(spec)  # also with evolve, so that errors in templates are reported
        if isinstance(provider, ReplayProvider):
            difference = provider.check(self.meta(spec), prompts.system)
            if difference:
                reason = f"the system prompt is another: {difference}; so replies are found by the candidates' names"
                expected["replay"] = reason
        if provider is None:
            self.evolve(spec)
        else:
            # what one request may cost, so that a search does not end with its first
            budget = self.budget()
            budget.check_price(provider)
            if not isinstance(provider, ReplayProvider):
                request = self.first_request(spec, prompts)
                budget.check_amount(provider, request)
                expected["cost"] = cost_line(self.settings, provider, request, budget.price(provider))
        with user_input():
            planner = MemoryPlanner(spec)
        with contextlib.closing(planner):
            # this checks the fitness function on a state of the task
            probe = planner.take_probe()
            prepare(replace(spec.changed(untrusted=False), sources=()), probe)
            planner.refuse_too_large()
            devices = _num_devices(described(self.task, self.overrides).config)
            physics = Physics.of(probe) if probe is not None and spec.config.device == "cpu" else None
            expected["time"] = time_line(spec.config, self.settings, physics, devices)
        confinement()
        return expected

    def first_request(self, spec: RunSpec, prompts: Prompts) -> Request:
        """Return the first request of the search."""
        sources = baseline_sources(spec.task, spec.config.task)
        archive = Archive([], {source.name: Attempt(source.name, 0, source.source) for source in sources})
        message = Message("user", prompts.question(archive, 1))
        return Request(prompts.system, (message,), self.settings.temperature, self.settings.max_output_tokens)

    def proposer(self, spec: RunSpec, provider: Provider | None, transcript: Path) -> Proposer:
        """Return the proposer, which continues from the transcript."""
        if provider is None:
            return self.evolve(spec)
        record = Transcript(transcript, self.meta(spec))
        kinds = self.meta(spec)["shaper_types"]
        return LLMProposer(provider, record, self.budget(), self.prompts(spec), self.settings, self.starts, kinds)


def _num_devices(cfg: RunConfig) -> int:
    asked = requested_devices(cfg)
    return 1 if asked is None or asked.count is None else asked.count
