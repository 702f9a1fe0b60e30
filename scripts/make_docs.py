"""Write docs/tasks.md from the tasks: their classes, YAML files, baselines, shipped candidates and ``about.md``.

``about.md`` in a task's folder holds the prose: its first paragraph introduces the task, the rest follows the table of
the baselines.
"""

from __future__ import annotations

import argparse
import ast
import textwrap
from pathlib import Path

from envcoder_bench.run.config import compose_config
from envcoder_bench.run.describe import function_docs, timing
from envcoder_bench.shaping.kinds import SHAPER_TYPES
from envcoder_bench.tasks.base import BASELINE_FILES
from envcoder_bench.tasks.contract import task_contract
from envcoder_bench.tasks.registry import get_spec, state_table
from envcoder_bench.tasks.sim_task import control_timing

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "tasks.md"
TASKS = (
    "Cartpole",
    "CartpoleSwingup",
    "Ant",
    "Humanoid",
    "Anymal",
    "AnymalTerrain",
    "SpotTerrain",
    "FrankaCubeStack",
    "AllegroHand",
)
HEADER = """\
# Tasks

<!-- written by `python scripts/make_docs.py`; edit the tasks, not this page -->

For each task: what its fitness measures, its timing and goal, its baselines, the keys of `state_dict` (n is the number
of environments of a candidate's group) and the shipped candidates. The names are IsaacGymEnvs', so that candidates
written for it carry over. [candidates.md](candidates.md) says how to write a candidate, [add_a_task.md](add_a_task.md)
how to add a task, and [results.md](results.md) how the baselines learn.

Every task has two baselines beside its model, in `envcoder_bench/tasks/<task>/`. `human.py` is the shaping of
IsaacGymEnvs, with the differences that are listed for each task. Two tasks are not in IsaacGymEnvs: CartpoleSwingup has
reward and observation of the DeepMind Control Suite, SpotTerrain has AnymalTerrain's reward and Isaac Lab's
observation. `unshaped.py` is the task without shaping; the fitness of every candidate is measured in its episodes. Ant
and Humanoid have `sparse.py` as well, Eureka's sparse reward in place of that of `human.py`.
"""


def docstring(path: Path) -> str:
    """Return the docstring of a file, which is not run."""
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def baselines_table(name: str) -> str:
    """Return a table of what the functions of the baselines do, by the first lines of their docstrings."""
    docs = {baseline: function_docs(name, baseline) for baseline in BASELINE_FILES}
    rows = [f"| function | {' | '.join(BASELINE_FILES)} |", "|---" * (1 + len(BASELINE_FILES)) + "|"]
    for function in SHAPER_TYPES:
        own = [docs[baseline].get(function, "") for baseline in BASELINE_FILES]
        if any(own):
            rows.append(f"| `{function}` | {' | '.join(own)} |")
    return "\n".join(rows)


def candidates_table(name: str) -> str:
    """Return a table of the files in user_functions/<name> with the first paragraph of each docstring."""
    rows = ["| candidate | what it is |", "|---|---|"]
    for path in sorted((ROOT / "user_functions" / name).glob("*.py")):
        rows.append(f"| `{path.name}` | {' '.join(docstring(path).split(chr(10) * 2)[0].split())} |")
    return "\n".join(rows)


def wrapped(text: str, indent: str = "") -> str:
    """Return a paragraph in lines of at most 120 characters; ``indent`` is that of the lines after the first."""
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def section(name: str) -> str:
    """Return the section of one task."""
    spec, cfg = get_spec(name), compose_config(name).task
    introduction, _, details = (spec.folder / "about.md").read_text(encoding="utf-8").strip().partition("\n\n")
    goals = ", ".join(f"`{key}`" for key in spec.task_class.goal_keys) or "none"
    dt, substeps = control_timing(cfg)
    physics = f"a control step is {substeps} physics step{'s' * (substeps != 1)} of {1e3 * dt / substeps:.3g} ms"
    sources = " ".join(docstring(spec.folder / "human.py").split("\n\n")[1].split())
    facts = (
        f"Fitness: {spec.task_class.fitness_meaning}.",
        f"Timing: {timing(task_contract(cfg))}; {physics}.",
        f"Goal: {goals}.",
        f"Files: `envcoder_bench/tasks/{spec.folder.name}/`, `cfg/task/{name}.yaml`, `cfg/train/{name}PPO.yaml`.",
    )
    return "\n\n".join(
        [
            f"## {name}",
            introduction,
            "\n".join(wrapped(f"- {what}", "  ") for what in facts),
            baselines_table(name),
            wrapped(f"`human`: {sources}"),
            details,
            f"State of {name}:",
            state_table(name),
            f"Candidates in `user_functions/{name}/`:",
            candidates_table(name),
        ]
    )


def tasks_page() -> str:
    """Return the text of docs/tasks.md."""
    return "\n".join([HEADER, *(section(name) + "\n" for name in TASKS)])


if __name__ == "__main__":
    argparse.ArgumentParser(description="Write docs/tasks.md from the tasks.").parse_args()
    PAGE.write_text(tasks_page(), encoding="utf-8")
    print(PAGE)
