"""The prompts of a search: the task, the contract of the functions, and the rules.

Templates are text files, ``cfg/prompt/*.md``, with placeholders ``$name``.
"""

import inspect
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from envcoder_bench.core.errors import UserError, near_matches
from envcoder_bench.core.folders import project_folder
from envcoder_bench.core.settings import Settings
from envcoder_bench.core.words import counted, join_words
from envcoder_bench.run.seeds import seed_count
from envcoder_bench.run.spec import RunConfig, RunSpec
from envcoder_bench.search.archive import Archive
from envcoder_bench.search.prompt.feedback import explain, fastest, feedback, history, to_mend
from envcoder_bench.shaping.contract import Fault
from envcoder_bench.shaping.kinds import (
    ACTION_TYPES,
    CRITIC_OBSERVATION,
    DOF_TARGET,
    GOAL,
    INITIAL_STATE,
    KINDS,
    OBSERVATION,
    SECTION_TYPES,
    SHAPER_TYPES,
    Kind,
)
from envcoder_bench.shaping.source import inlined
from envcoder_bench.tasks.base import Field
from envcoder_bench.tasks.contract import TaskContract, shown, task_contract
from envcoder_bench.tasks.sim_task import read
from envcoder_bench.trainers.registry import trainer_class
from mujoco_batches import torch_utils

SYSTEM, TERMS, BASELINE, FIRST, NEXT, REPAIR, DUPLICATE, MISSING = MAIN = (
    "system.md", "terms.md", "baseline.md", "first.md", "next.md", "repair.md", "duplicate.md", "missing.md",
)  # fmt: skip
START_BEST, START_FASTEST, START_MEND, START_NEW, START_LAST = STARTS = (
    "start/best.md", "start/fastest.md", "start/mend.md", "start/new.md", "start/last.md",
)  # fmt: skip
TEMPLATES = (*MAIN, *STARTS, *(f"functions/{kind}.md" for kind in SHAPER_TYPES))

MIN_FEEDBACK = 2000  # characters that a prompt must leave for the feedback

_HELPER = re.compile(r'^def ([a-z]\w*)\(([^)]*)\)( -> [^:]+)?:\n    """([^"\n]+)', re.MULTILINE)
_NO_HELPERS = (  # functions of numpy arrays and lists, which candidates do not need, and aliases
    "to_torch", "get_axis_params", "unscale_np", "my_quat_rotate", "get_basis_vector", "normalise_quat_in_pose",
    "scale_transform", "unscale_transform", "saturate",
)  # fmt: skip
_OF_ROTATIONS = re.compile(r"quat|euler|heading|exp_map|matrix|slerp|angle_axis|compute_rot|tf_|world_space")
_ORIGIN = re.compile(r"\n\nSource: .*?\"\"\"", re.DOTALL)  # where a baseline's formulas are from
_DRAWS = """\
- Random numbers by `torch_rand_float(lower, upper, (n, k), device)` or `torch.rand`, `randn`, `randint` and their like;
  not by `random`, `numpy.random` or `torch.randperm`. Every call draws new numbers.
"""
_DRAWING = (OBSERVATION, CRITIC_OBSERVATION, INITIAL_STATE, GOAL)  # functions that usually draw random numbers


class Prompts:
    """The prompts of a search, each of at most ``max_chars`` characters including the system prompt.

    Attributes:
        system: the system prompt, see ``system_prompt``.
    """

    def __init__(
        self, templates: Mapping[str, str], system: str, rounds: int, max_chars: int, description: str = ""
    ) -> None:
        """Check the templates; ``description`` is part of the system prompt.

        Raises:
            UserError: for invalid templates, or if ``max_chars`` leaves no room for feedback.
        """
        self.system = system
        self._templates, self._rounds, self._max_chars = templates, rounds, max_chars
        starts = [self._start(template, "r99999_9999") for template in STARTS]
        fixed = max(len(self._question(Archive(), 1, 0, 0)), len(self._next(rounds, "", max(starts, key=len))))
        self._room = max_chars - len(system) - fixed
        if self._room < MIN_FEEDBACK:
            least = max_chars - self._room + MIN_FEEDBACK
            share = f" ({len(description)} of them for --task_description)" if len(description) > MIN_FEEDBACK else ""
            raise UserError(f"prompt.max_chars={max_chars} is too little: this task needs {least} at least{share}")
        self.repair(Fault(""), "")  # raises now if a template is invalid
        self.duplicate(Archive(), {}, Fault(""), "")
        self.missing(Archive(), 1, "", "")

    def question(self, archive: Archive, round: int, sample: int = 0) -> str:
        """Return the user's message for a sample of a round; its end is the sample's starting point."""
        return self._question(archive, round, sample, self._room)

    def _question(self, archive: Archive, round: int, sample: int, room: int) -> str:
        if not archive.attempts:
            return fill(self._templates, FIRST)
        starts = self._starts(archive, round)
        return self._next(round, feedback(archive, room), starts[sample % len(starts)])

    def _starts(self, archive: Archive, round: int) -> list[str]:
        """Return the texts of the starting points of a round: samples take turns."""
        best, fast, mend = archive.best(), fastest(archive), to_mend(archive)
        attempts = {START_BEST: best, START_FASTEST: fast, START_MEND: mend}
        if round >= self._rounds and best is not None:
            return [self._start(START_LAST, a.name) for a in (best, fast, mend) if a is not None]
        named = [self._start(template, a.name) for template, a in attempts.items() if a is not None]
        return [*named, self._start(START_NEW, "")]

    def _start(self, template: str, name: str) -> str:
        return fill(self._templates, template, candidate=name).strip()

    def _next(self, round: int, text: str, start: str) -> str:
        return fill(self._templates, NEXT, round=round, rounds=self._rounds, feedback=text, start=start)

    def repair(self, fault: Fault, source: str) -> str:
        """Return the user's message for the repair of a file; empty if it would be too long."""
        return self._if_short(fill(self._templates, REPAIR, error=explain(fault, source), source=source.strip()))

    def duplicate(self, archive: Archive, others: Mapping[str, str], fault: Fault, source: str) -> str:
        """Return the user's message for a file that equals another; empty if it would be too long.

        Args:
            archive: the earlier rounds.
            others: sources of this round's other candidates by name.
            fault: names the equal candidate.
            source: the file.
        """
        values = {"twin": fault.twin, "reason": fault.message, "source": source.strip()}
        room = self._max_chars - len(self.system) - len(fill(self._templates, DUPLICATE, tried="", **values))
        return self._if_short(fill(self._templates, DUPLICATE, tried=history(archive, others, room), **values))

    def missing(self, archive: Archive, round: int, error: str, reply: str, sample: int = 0) -> str:
        """Return the user's message after a reply without a candidate; empty if it would be too long.

        Args:
            archive, round, sample: as in ``question``, which the message repeats.
            error: what the reply lacks.
            reply: its beginning.
        """
        values = {"error": error, "reply": reply}
        room = self._room - len(fill(self._templates, MISSING, question="?", **values))
        question = self._question(archive, round, sample, room).strip()
        return self._if_short(fill(self._templates, MISSING, question=question, **values))

    def _if_short(self, text: str) -> str:
        return text if len(self.system) + len(text) <= self._max_chars else ""


def load_templates(folder: Path | None = None) -> dict[str, str]:
    """Read the templates by name; those in ``folder`` replace the shipped ones.

    Raises:
        UserError: if the folder does not exist, or a file in it is not a template or cannot be read.
    """
    shipped = project_folder("cfg") / "prompt"
    places = {name: shipped / name for name in TEMPLATES}
    if folder is not None:
        if not folder.is_dir():
            raise UserError(f"--prompt_dir {folder}: the folder does not exist")
        replacements = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*.md"))}
        for name, path in replacements.items():
            if name not in TEMPLATES:
                hint = near_matches(name, TEMPLATES)
                raise UserError(f"{path} is not a template{hint}; there are {', '.join(TEMPLATES)}")
        if not replacements:
            raise UserError(f"--prompt_dir {folder} has no template; there are {', '.join(TEMPLATES)}")
        places.update(replacements)
    try:
        return {name: _template(path) for name, path in places.items()}
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--prompt_dir {folder}: a template cannot be read: {error}") from error


def _template(path: Path) -> str:
    """Return a template's text; for a function without a template, its entry in the table of kinds."""
    if path.stem in KINDS and not path.exists():
        kind = KINDS[path.stem]
        return f"- `{kind.signature}` returns {kind.returns}. It is called {kind.called}.\n"
    return path.read_text(encoding="utf-8")


def fill(templates: Mapping[str, str], name: str, **values: object) -> str:
    """Fill in a template.

    Raises:
        UserError: for an unknown ``$name`` or a lone ``$``, with the line.
    """
    text = templates[name]
    try:
        return Template(text).substitute(values).strip() + "\n"
    except KeyError as error:
        key = error.args[0]
        line = text[: text.index(f"${key}" if f"${key}" in text else f"${{{key}")].count("\n") + 1
        names = ", ".join(f"${name}" for name in values)
        raise UserError(
            f"template {name}:{line}: there is no ${key}{near_matches(key, values)}; there are {names}"
        ) from None
    except ValueError as error:
        line = re.search(r"line (\d+)", str(error))
        where = f":{line.group(1)}" if line else ""
        raise UserError(f"template {name}{where}: a lone $: write $$") from None


def system_prompt(
    templates: Mapping[str, str],
    run: RunSpec,
    task_description: str,
    fitness_meaning: str,
    shaper_types: Sequence[str] | None,
    show_baseline: bool = True,
) -> str:
    """Return the system prompt of a search, which does not depend on results.

    Args:
        run: the search's runs; their config is the source of all numbers.
        task_description, fitness_meaning: the desired behaviour, and the meaning of the fitness.
        shaper_types: the functions to write; None for all.
        show_baseline: whether to include the baseline's source and the constants of its formulas.
    """
    spec, cfg, baseline = run.task, run.config, run.config.baseline
    facts = task_contract(spec, cfg.task)
    fields = facts.fields
    numbers = {key: shown(value) for key, value in facts.values.items()}
    formula = facts.drive_formula
    asked = SHAPER_TYPES if shaper_types is None else shaper_types
    if shaper_types is None and trainer_class(cfg.params).critic_refusal(cfg.params) is not None:
        asked = [kind for kind in asked if kind != CRITIC_OBSERVATION]
    names = [kind for kind in SHAPER_TYPES if kind in asked and kind not in facts.refusals]
    values = _contract_values(facts, cfg)
    keys = {name: _keys(KINDS[name], facts, fields) for name in names}
    names = [name for name in names if keys[name] or KINDS[name].keys is None] or names
    draws = bool({*names} & {*_DRAWING})
    baseline_values: dict[str, object] = {"baseline": baseline, "baseline_source": "# is not shown"}
    if show_baseline:
        source = inlined(spec.baseline_path(baseline, cfg.task).read_text(encoding="utf-8")).strip()
        baseline_values["baseline_source"] = _ORIGIN.sub('"""', source, count=1)
    patched = [f"`{name}`" for name, kind in SECTION_TYPES.items() if kind in asked and name != "rewards"]
    terms = fill(templates, TERMS, dt=shown(facts.dt), sections=", ".join(patched) or "other dicts")
    # constants of the human baseline's reward; those of actions, which all candidates may use, are described otherwise
    constants = [key for key, field in fields.items() if field.shape is None and BASELINE_MARK in field.meaning]
    section = fill(templates, BASELINE, **baseline_values)  # also if it is not used, so that errors are reported
    return fill(
        templates,
        SYSTEM,
        task=spec.name,
        summary=spec.summary,
        task_description=" ".join(task_description.split()),
        fitness_meaning=fitness_meaning,
        functions=_listed([f"`{kind}`" for kind in names]),
        contract="\n".join(
            fill(templates, f"functions/{name}.md", keys=keys[name], **values).rstrip() for name in names
        ),
        training=training(cfg, facts),
        state=facts.state_table(numbers, () if show_baseline else constants),
        quaternions=f"Quaternions are {facts.quaternions}. " if has_rotations(facts) else "",
        points=_points(cfg, facts),
        terms=f"\n{terms}" if spec.sections is not None else "",
        robot=facts.notes or robot(facts, fields, formula, dict(read(cfg.task, "env.control", {})) if formula else {}),
        helpers="\n".join(helper_lines(has_rotations(facts), draws)),
        draws=_DRAWS if draws else "",
        baseline_section=f"\n{section}" if show_baseline else "",
        baseline_place=", printed below" if show_baseline else ", which is not shown to you",
        **baseline_values,
    )


def has_rotations(facts: TaskContract) -> bool:
    """Return whether the state has a quaternion: one of its keys holds four numbers or the state of a body."""
    shapes = [field.shape for field in facts.fields.values() if field.shape]
    return any(shape[-1] in (4, 13) for shape in shapes) or any("quat" in key for key in facts.fields)


def _points(cfg: RunConfig, facts: TaskContract) -> str:
    """Return how the evaluations in the course of a training differ from the last one."""
    steps = cfg.evaluation.point_steps
    if steps is None or facts.fitness_reduction == "sum" or steps >= facts.max_episode_length - 1:
        return ""
    return f", but for the last one of the first {counted(steps, 'step')} of each episode alone"


def helper_lines(rotations: bool = True, draws: bool = True) -> list[str]:
    """Return a line for each helper function with its signature and description.

    Args:
        rotations: whether the state has quaternions, which many of them take.
        draws: whether functions are asked for that usually draw random numbers.
    """
    source = inspect.getsource(torch_utils)
    rows = [row for row in _HELPER.findall(source) if row[0] not in _NO_HELPERS]
    rows = [row for row in rows if (rotations or not _OF_ROTATIONS.search(row[0])) and (draws or "rand" not in row[0])]
    return [
        f"- `{name}({' '.join(parameters.split())}){returned}`: {meaning.strip(' .')}"
        for name, parameters, returned, meaning in rows
    ]


def _keys(kind: Kind, facts: TaskContract, fields: Mapping[str, Field]) -> str:
    """Return the keys that a function may return, with their shapes; empty if it returns one tensor."""
    keys = [key for key in (kind.keys(facts) if kind.keys else ()) if key in fields]
    shapes = {key: ", ".join(["n", *map(str, fields[key].shape or ())]) for key in keys}
    return ", ".join(f"`{key}` `({shape})`" for key, shape in shapes.items())


def _contract_values(facts: TaskContract, cfg: RunConfig) -> dict[str, object]:
    """Return this task's values for the placeholders in the contracts of all functions."""
    joints = (facts.fields["dof_pos"].shape or (0,))[0] if "dof_pos" in facts.fields else 0
    width = facts.default_action_dim
    drives = ""
    if width is not None:
        drives = (
            f"Where neither the file nor the baseline has one, the action is `(n, {width})` and moves the task's own"
            " position drives."
        )
    seen, acted = (
        float(read(cfg.task, "env.clipObservations", math.inf)),
        float(read(cfg.task, "env.clipActions", math.inf)),
    )
    return {
        "num_dofs": joints,
        "joints": f"`(n, {joints})`",
        "observation_clip": f", and before that clipped to +-{seen:g}: scale what gets larger"
        if seen < math.inf
        else "",
        "action_range": f"between {-acted:g} and {acted:g}",
        "drives": drives,
    }


def _listed(names: Sequence[str]) -> str:
    """Return ``a`` or ``any of a, b and c``."""
    if len(names) == 1:
        return names[0]
    both_actions = sum(any(kind in name for kind in ACTION_TYPES) for name in names) > 1
    text = f"any of {join_words(names)}, as many as the idea needs"
    return f"{text} (of the two action functions one at most)" if both_actions else text


# robot and training in words; all numbers are from the run's config


def _joint(name: str, facts: TaskContract, with_effort: bool) -> str:
    effort = _effort(facts, name) if with_effort and name in facts.joint_facts else ""
    return " ".join(filter(None, (name, facts.joint_facts.get(name)))) + (f", {effort}" if effort else "")


def _effort(facts: TaskContract, name: str) -> str:
    effort = facts.effort_limits[facts.joints.index(name)] if facts.effort_limits else math.inf
    is_limited = effort < 1e30  # an Isaac Gym asset without limits has the largest float
    return "passive" if not effort else f"{effort:.4g} {_unit(facts, name)} at most" if is_limited else ""


def _unit(facts: TaskContract, name: str) -> str:
    return "N" if facts.joint_facts.get(name, "").startswith("slides") else "N m"


def _level(facts: TaskContract) -> str:
    root = facts.default_state.get("root_states", ())
    return ", facing +x" if root and abs(root[6]) > 0.999 else ""


BASELINE_MARK = "human baseline"  # part of the description of constants that only the baseline uses


def robot(facts: TaskContract, fields: Mapping[str, Field], formula: str, control: Mapping[str, Any]) -> str:
    """Describe joints, bodies, drives and the default state, one per line.

    Args:
        formula: its ``drive_formula``.
        control: the config's ``env.control``, the numbers of the formula.
    """
    masses = [f" {mass:.3g} kg" if mass else "" for mass in facts.masses] or [""] * len(facts.bodies)
    bodies = [f"{k} {name}{mass}" for k, (name, mass) in enumerate(zip(facts.bodies, masses))]
    limits = {(limit, _unit(facts, name)) for limit, name in zip(facts.effort_limits, facts.joints)}
    equal = len(facts.joints) > 1 and len(limits) == 1
    joints = [_joint(name, facts, not equal) for name in facts.joints]
    frame = f" (axes and directions of the world, in the default pose{_level(facts)})" if facts.joint_facts else ""
    limit = _effort(facts, *facts.joints[:1]) if equal and facts.joint_facts else ""
    each = f"; each {limit}" if limit else ""
    lines = [f"- Joints, in the order of `dof_pos`{frame}: {'; '.join(joints)}{each}."]
    lines += [f"- From rest in that pose, {text}." for text in facts.pushes]
    lines.append(
        f"- Bodies{', by their index in `contact_forces`' * ('contact_forces' in fields)}: {', '.join(bodies)}."
    )
    lines += [f"- Sensors: {', '.join(facts.sensors)}."] if facts.sensors else []
    lines += [f"- Sites: {', '.join(facts.sites)}."] if facts.sites else []
    if facts.drives and DOF_TARGET not in facts.refusals:
        units = {"stiffness": "N m/rad", "damping": "N m s/rad"}
        gains = [f"{name} {shown(value)} {units[name]}" for name, value in facts.drives.items()]
        lines.append(f"- Its position drives: {', '.join(gains)}.")
    if formula:
        numbers = [f"{key} {shown(value)}" for key, value in control.items() if re.search(rf"\b{key}\b", formula)]
        lines.append(f"- What an action does without action function: {formula}{''.join(f'; {x}' for x in numbers)}.")
    state = [f"`{key}` {shown(value)}" for key, value in facts.default_state.items()]
    note = "where an episode begins as far as no `compute_initial_state`, yours or the baseline's, sets it"
    lines.append(f"- The default state, {note}: {'; '.join(state)}.")
    return "\n".join(lines)


def training(cfg: RunConfig, facts: TaskContract) -> str:
    """Describe a candidate's budget and episodes, and PPO's use of its reward, one per line."""
    config = cfg.train.params.config
    horizon, iterations, envs = int(config.horizon_length), cfg.learning_iterations, cfg.num_envs_per_candidate
    each = iterations * horizon
    gamma, episode = float(config.gamma), facts.max_episode_length
    seeds = f", with each of {seed_count(cfg)} seeds" if seed_count(cfg) > 1 else ""
    control = f"{counted(facts.substeps, 'physics step')}, {1 / facts.dt:.4g} control steps a second"
    lines = [
        f"- Time: a control step lasts {facts.dt:.5g} s ({control}). An episode lasts"
        f" {counted(episode, 'control step')} at most, {episode * facts.dt:.4g} s.",
        f"- Budget of a candidate{seeds}: {counted(envs, 'environment')} x {counted(iterations, 'iteration')} of"
        f" {counted(horizon, 'control step')} and one PPO update each. So an environment plays"
        f" {counted(each, 'control step')}, {each * facts.dt:.4g} s or {each / episode:.3g} full episodes;"
        f" all together play {counted(each * envs, 'control step')}.",
    ]
    # how far ahead a reward counts, which a model cannot see from gamma
    if 0 < gamma < 1:
        ahead = 1 / (1 - gamma)
        lines.append(
            f"- Discount: gamma {gamma:g} for each control step: what comes {ahead:.3g} control steps"
            f" ({ahead * facts.dt:.3g} s) later counts {gamma**ahead:.2g} of what comes now."
        )
    else:
        lines.append(f"- Discount: gamma {gamma:g} for each control step.")
    lines.append(f"- Reward: {_reward_scale(config)}")
    lines.append(
        f"- Judged over {counted(cfg.evaluation.final_episodes, 'episode')}{' with each seed' * (seed_count(cfg) > 1)}."
        " Every round has seeds of its own, and both baselines train with them as well."
    )
    return "\n".join(lines)


def _reward_scale(config: Settings) -> str:
    """Describe how rewards are scaled before training."""
    shaper = dict(config.reward_shaper.items())
    scale = shown(float(shaper.pop("scale_value", 1.0)))
    more = ", ".join(f"{name} {shown(value)}" for name, value in shaper.items())
    text = f"PPO learns from it times {scale}" + (f" (and reward_shaper's {more})." if more else ".")
    if config.get("normalize_value") and config.get("normalize_advantage"):
        text += " PPO normalizes returns and advantages for each candidate: what counts is how components compare."
    return text
