"""What the dicts of candidates stand for: functions that read the results of their terms."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor

from envcoder_bench.sources.term_tasks.block import Block
from envcoder_bench.sources.term_tasks.dialect import Dialect
from envcoder_bench.sources.term_tasks.facts import TermFacts
from envcoder_bench.sources.term_tasks.faults import FAULTS, PatchError, raised_in
from envcoder_bench.sources.term_tasks.patches import Patches, changes_terms, in_module, only_weights, patched
from envcoder_bench.sources.term_tasks.terms import frozen

TRIAL_ENVS = 11  # a candidate's dicts are tried with so many: hardly the size of anything else
SPARE_COLUMNS, SPARE_TERMS = 128, 32  # so many columns of observations, and reward terms, candidates may add

_FUNCTIONS = {
    "compute_reward": """def compute_reward(reward_buf, reward_terms):
    \"\"\"The weighted sum of its reward terms.\"\"\"
    terms = {{{columns}}}
    return sum(terms.values()) if terms else reward_buf, terms
""",
    "compute_observation": """def compute_observation(obs_buf):
    \"\"\"Its observation terms of the actor.\"\"\"
    return obs_buf[:, :{width}]
""",
    "compute_critic_observation": """def compute_critic_observation(critic_buf):
    \"\"\"Its observation terms of the critic.\"\"\"
    return critic_buf[:, :{critic}]
""",
    "compute_terminal": """def compute_terminal(reset_buf):
    \"\"\"Its termination terms, without time-outs.\"\"\"
    return reset_buf
""",
}


def functions_text(terms: Sequence[str], widths: Mapping[str, int], file_has: Callable[[str], bool]) -> str:
    """Return the functions that read the results of a candidate's terms, without those that its file has.

    Args:
        terms: the names of its reward terms.
        widths: columns of the observations of its ``actor`` and, if there is one, its ``critic``.
    """
    columns = ", ".join(f"{name!r}: reward_terms[:, {k}]" for k, name in enumerate(terms))
    texts = [text for name, text in _FUNCTIONS.items() if not file_has(name)]
    numbers = {"width": widths["actor"], "critic": widths.get("critic", 0)}
    return "\n\n".join(
        text.format(columns=columns, **numbers) for text in texts if numbers["critic"] or "critic" not in text
    )


def functions_of(terms: Sequence[str], widths: Mapping[str, int]) -> dict[str, Callable[..., Any]]:
    """Return the functions of ``functions_text``."""

    def compute_reward(reward_buf: Tensor, reward_terms: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        columns = {name: reward_terms[:, k] for k, name in enumerate(terms)}
        return sum(columns.values(), 0.0) if columns else reward_buf, columns  # type: ignore[return-value]

    def compute_observation(obs_buf: Tensor) -> Tensor:
        return obs_buf[:, : widths["actor"]]

    def compute_critic_observation(critic_buf: Tensor) -> Tensor:
        return critic_buf[:, : widths["critic"]]

    def compute_terminal(reset_buf: Tensor) -> Tensor:
        return reset_buf

    functions = [compute_reward, compute_observation, compute_terminal]
    if "critic" in widths:
        functions.append(compute_critic_observation)
    return {function.__name__: function for function in functions}


class Trial(Protocol):
    """A task in a small simulation."""

    blocks: list[Block]
    faults: dict[int, Exception]

    def try_step(self, patches: Patches | None = None) -> None:
        """Begin episodes with a candidate's patches, and take a step without actions."""
        ...


class TermSections:
    """The sections of a task's config: what dicts of candidates stand for, and whether they fit.

    Args:
        facts: the task.
        make_trial: builds it with a number of environments.
    """

    def __init__(self, facts: TermFacts, make_trial: Callable[[int], Trial]) -> None:
        self._facts, self._make_trial = facts, make_trial
        # with the patches, so that the identities in a key stay theirs
        self._known: dict[Any, tuple[Patches, list[str], dict[str, int]]] = {}

    @functools.cached_property
    def _trial(self) -> Trial:
        return self._make_trial(TRIAL_ENVS)

    def complete(self, module: Mapping[str, Any], source: str) -> tuple[dict[str, Callable[..., Any]], Patches]:
        """Return the functions that read the results of a candidate's dicts, and the dicts, by section.

        Raises:
            PatchError: a dict does not fit the task's config, or a term raises or returns another shape.
        """
        patches = in_module(module, source)
        if not patches:
            return {}, {}
        facts = self._facts
        base = facts.env_cfg()
        (config,) = patched(facts.dialect, base, [patches], facts.actor)
        if (shared := facts.shared_by_groups(config)) is not None:
            section, name, what, remedy = shared
            raise PatchError(section, name, f"{section}['{name}'] {what}: take {remedy}")
        names, widths = list(facts.dialect.terms(config, "rewards")), dict(facts.own_widths)
        if not only_weights(patches) or changes_terms(facts.dialect, base):
            key = frozen(patches)  # a file is loaded again for each seed, and for its page
            if key not in self._known:
                self._known[key] = (patches, *self.tried(patches))
            _, names, widths = self._known[key]
        for name, width in (*widths.items(), ("terms", len(names))):
            if width > facts.widths.get(name, width):
                section = "rewards" if name == "terms" else "observations"
                spare = SPARE_TERMS if name == "terms" else SPARE_COLUMNS
                raise PatchError(section, "", f"{section} has more than {spare} numbers beyond those of the task")
        functions = functions_of(names, widths)
        return {name: function for name, function in functions.items() if name not in module}, patches

    def tried(self, patches: Patches) -> tuple[list[str], dict[str, int]]:
        """Take a step with a candidate's patches; return its reward terms, and the widths of its observations."""
        task = self._trial
        try:
            task.try_step(patches)
        except PatchError:
            raise
        except FAULTS as error:
            raise raised_in(", ".join(patches), "", error) from error
        for error in task.faults.values():
            raise error
        block = task.blocks[0]
        if (overridden := set_by_curriculum(block)) is not None:
            section, name = overridden
            message = f"the curriculum sets the numbers of {section}['{name}'] from the first step on"
            raise PatchError(section, name, f"{message}: patch or remove it in curriculum, too")
        return list(self._facts.dialect.terms(block.cfg, "rewards")), block.observations.widths()


def set_by_curriculum(block: Block) -> tuple[str, str] | None:
    """Return section and name of what the first group has patched, and its curriculum has set to other numbers.

    A curriculum that the group has patched, too, may set the terms that it names.
    """
    dialect, allowed = block.dialect, _named_by_own_curriculum(block)
    tables = {"rewards": block.rewards, "terminations": block.ends}
    live = {
        section: {term.name: term.cfg if term.shared is None else term.shared.of(0) for term in table.terms}
        for section, table in tables.items()
    }
    live["commands"] = {name: term.cfg for name, term in dialect.command_terms(block.command_manager)}
    for section, terms in live.items():
        registered, of_group = (dialect.terms(cfg, section) for cfg in (block.world.cfg, block.configs[0]))
        for name, cfg in terms.items():
            if name not in registered or name in allowed:
                continue
            before, asked, now = (_numbers(dialect, x) for x in (registered[name], of_group[name], cfg))
            if any(x not in (before.get(key), now.get(key)) for key, x in asked.items()):
                return section, name
    return None


def _named_by_own_curriculum(block: Block) -> set[str]:
    """Return the terms that the patched terms of the first group's curriculum name in their parameters."""
    dialect = block.dialect
    registered, of_group = (dialect.terms(cfg, "curriculum") for cfg in (block.world.cfg, block.configs[0]))
    names: set[str] = set()
    for name, term in of_group.items():
        if registered.get(name) is not term:
            names.update(x for x in dialect.get(term, "params").values() if isinstance(x, str))
    return names


def _numbers(dialect: Dialect, cfg: Any) -> dict[str, Any]:
    """Return the numbers of a term's config, or a command's, and their ranges."""
    if cfg is None:
        return {}
    get, ranges = dialect.get, dialect.get(cfg, "ranges")
    values = {**dialect.values(cfg), **get(cfg, "params", {})}
    values.update({} if ranges is None else dialect.values(ranges))
    return {key: x for key, x in values.items() if isinstance(x, (int, float, tuple))}
