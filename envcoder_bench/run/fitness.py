"""The fitness of a run: the task's own, or a file's compute_fitness."""

import ast
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envcoder_bench.core.errors import UserError, near_matches
from envcoder_bench.core.folders import user_file
from envcoder_bench.core.plain_text import one_line
from envcoder_bench.run.config import find_task
from envcoder_bench.run.folder.run_folder import FITNESS_NAME, RunFolder
from envcoder_bench.run.prepare.run_files import SlowFiles, load_fitness
from envcoder_bench.run.spec import CandidateSource, RunConfig, RunSpec
from envcoder_bench.shaping.contract import CandidateError
from envcoder_bench.shaping.kinds import FITNESS, KINDS, REWARD, SECTION_TYPES, UNSHAPED
from envcoder_bench.shaping.loading import Complete, load_source, parse
from envcoder_bench.sources.registry import is_installed
from envcoder_bench.tasks.spec import Functions, Patches, TaskSpec


def read_fitness(task: TaskSpec, cfg: RunConfig) -> CandidateSource | None:
    """Read the file ``cfg.fitness``, and load it once to check it; return None for the task's own fitness.

    Raises UserError if it cannot be read or loaded, or lacks ``compute_fitness`` or a docstring.
    """
    if cfg.fitness is None:
        if not task.fitness_meaning:
            raise UserError(
                f"{task.name} has no fitness of its own, by which candidates could be ranked: write one and give it"
                " with --fitness FILE (docs/candidates.md#a-fitness-of-your-own)"
            )
        return None
    return read_file(cfg.fitness, _refuse_dicts if task.sections is None else task.sections.complete)


def read_file(name: str | Path, complete: Complete | None = None) -> CandidateSource:
    """Read a fitness file and load it once to check it. Raises UserError as ``read_fitness``.

    Args:
        complete: the task's, see ``load_candidate``; None: the task is not known, and the file's dicts are not read.
    """
    path = user_file(name)
    if not path.is_file():
        siblings = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
        what = "is a folder: give a file" if path.is_dir() else f"does not exist{near_matches(path.name, siblings)}"
        raise UserError(f"--fitness {path} {what}")
    try:
        source = CandidateSource(FITNESS_NAME, str(path), load_source(path))
        with SlowFiles() as slow, slow.step("loading", source.file):
            load_fitness(source, 0, complete=complete)
        _meaning(source)
    except (OSError, CandidateError) as error:
        raise UserError(f"--fitness {error}") from error
    return source


class _DictError(ValueError):
    """A file has a dict that the task does not take; ``section`` is its name."""

    section = ""


def _refuse_dicts(module: Mapping[str, Any], source: str) -> tuple[Functions, Patches]:
    """Refuse the dicts of a fitness file for a task without sections."""
    for section, kind in SECTION_TYPES.items():
        if isinstance(module.get(section), dict) and KINDS[kind].judged_with == UNSHAPED and kind != REWARD:
            error = _DictError(f"the dict {section} is for manager-based tasks of mjlab and Isaac Lab")
            error.section = section
            raise error
    return {}, {}


def recorded_task(cfg: RunConfig) -> TaskSpec | None:
    """Return the task of a run whose code is not a folder's: a shipped one or an installed package's; else None."""
    return find_task(cfg.address) if is_installed(cfg.address) else None


def recorded_meaning(folder: RunFolder, cfg: RunConfig) -> str:
    """Return what a run's fitness measures, in one line, from its files. No code of the folder is executed.

    Raises UserError as ``RunFolder.read_fitness``.
    """
    source = folder.read_fitness(cfg)
    meaning = folder.recorded.get("fitness_meaning")
    if not meaning and source is not None:
        try:
            meaning = _meaning(source)
        except CandidateError as error:
            raise UserError(f"{folder.fitness}: {error.fault.explanation}") from error
    if not meaning and folder.provenance is not None:
        meaning = folder.provenance.fitness.get("fitness_meaning")
    return one_line(meaning) or f"of the task {one_line(cfg.task_title)}"


def fitness_meaning(spec: RunSpec) -> str:
    """Return in one line what fitness measures, from the docstring of the run's fitness file, or from its task."""
    return spec.task.fitness_meaning if spec.fitness is None else _meaning(spec.fitness)


def _meaning(source: CandidateSource) -> str:
    """Return the first paragraph of the docstring of the file, or of its function, on one line."""
    tree = parse(source.source, source.file)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == FITNESS]
    for node in (tree, *functions):
        text = ast.get_docstring(node)
        if text:
            return " ".join(text.partition("\n\n")[0].split())
    line = functions[-1].lineno if functions else None
    remedy = "its first paragraph describes the measure and its unit in the results"
    raise CandidateError("needs a docstring", source.file, line, FITNESS, remedy=remedy)


def fitness_bounds(task: TaskSpec | None, cfg: RunConfig) -> tuple[float, float]:
    """Return the least and the greatest fitness of an episode; infinite if they are not known."""
    if cfg.fitness is not None or task is None:
        least, greatest = cfg.fitness_bounds or (-math.inf, math.inf)
        return float(least), float(greatest)
    return task.fitness_bounds
