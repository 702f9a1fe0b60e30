"""The tasks by name. A new task: one folder, one YAML in cfg/task, and one line here."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Collection, Mapping

from envcoder_bench.core.errors import near_matches

if TYPE_CHECKING:  # torch loads with a task's class, which the names do without
    from envcoder_bench.tasks.base import Task
    from envcoder_bench.tasks.sim_task import SimTask


@dataclass(frozen=True)
class TaskSpec:
    """Where a task lives: its folder (model and baselines), and its class or, of this package, its class's name."""

    folder: Path
    task: type[SimTask] | str

    @property
    def task_class(self) -> type[SimTask]:
        if isinstance(self.task, str):
            return getattr(import_module(f"envcoder_bench.tasks.{self.folder.name}.task"), self.task)
        return self.task

    @property
    def model_path(self) -> Path:
        return self.folder / self.task_class.model


_TASKS: dict[str, TaskSpec] = {}


def register(name: str, spec: TaskSpec) -> None:
    """Add a task.

    Raises:
        ValueError: the name is taken.
    """
    if name in _TASKS:
        raise ValueError(f"the task '{name}' is registered already, in {_TASKS[name].folder}")
    _TASKS[name] = spec


_HERE = Path(__file__).resolve().parent
register("AllegroHand", TaskSpec(_HERE / "allegro_hand", "AllegroHand"))
register("Ant", TaskSpec(_HERE / "ant", "Ant"))
register("Anymal", TaskSpec(_HERE / "anymal", "Anymal"))
register("Cartpole", TaskSpec(_HERE / "cartpole", "Cartpole"))
register("FrankaCubeStack", TaskSpec(_HERE / "franka_cube_stack", "FrankaCubeStack"))
register("Humanoid", TaskSpec(_HERE / "humanoid", "Humanoid"))


def task_names() -> list[str]:
    """The registered tasks, sorted."""
    return sorted(_TASKS)


def check_task_name(name: str) -> None:
    """Raise ValueError with near matches for a name that is no task."""
    if name not in _TASKS:
        # case is the usual slip: IsaacGymEnvs' names have capitals
        same = [known for known in _TASKS if known.lower() == name.lower()]
        hint = f" (did you mean {same[0]}?)" if same else near_matches(name, task_names())
        raise ValueError(f"unknown task '{name}'{hint}; there are {', '.join(task_names())}")


def get_spec(name: str) -> TaskSpec:
    """Look a task up; raises ValueError as check_task_name does."""
    check_task_name(name)
    return _TASKS[name]


def baseline_path(name: str, baseline: str) -> Path:
    """The candidate file of a task's baseline, ``human`` or ``unshaped``."""
    from envcoder_bench.tasks.base import BASELINES

    if baseline not in BASELINES:
        hint = near_matches(baseline, BASELINES)
        raise ValueError(f"unknown baseline '{baseline}'{hint}; there are {', '.join(BASELINES)}")
    return get_spec(name).folder / f"{baseline}.py"


def make_task(name: str, cfg: Mapping[str, Any], num_envs: int, sim: str, device: str) -> Task:
    """Build a task and its simulation.

    Args:
        name: a registered task.
        cfg: its YAML, ``cfg/task/<name>.yaml``.
        num_envs: environments.
        sim: the simulator's name, e.g. ``mujoco_cpu``.
        device: torch device.

    Raises:
        ValueError: an unknown task, simulator or key of ``cfg``, or one that is missing.
    """
    from envcoder_bench.sim import make_simulator  # here: naming tasks must load neither torch nor a physics engine
    from envcoder_bench.tasks.sim_task import COMMON_KEYS, ISAACGYM_KEYS, check_config, control_timing, read

    spec = get_spec(name)
    task_class = spec.task_class
    check_config(cfg, COMMON_KEYS + task_class.config_keys, ISAACGYM_KEYS + task_class.ignored_keys)
    dt, substeps = control_timing(cfg)
    control = read(cfg, "env").get("control", {})
    simulator = make_simulator(
        sim,
        spec.model_path,
        num_envs,
        dt,
        substeps,
        device,
        stiffness=control.get("stiffness"),
        damping=control.get("damping"),
    )
    task = task_class(cfg, simulator)
    if task.max_episode_length < 2:
        raise ValueError(f"cfg/task/{name}.yaml: an episode must last at least 2 steps, got {task.max_episode_length}")
    return task


def state_table(name: str, values: Mapping[str, str] | None = None, without: Collection[str] = ()) -> str:
    """The keys of a task's ``state_dict`` as a Markdown table; n is the environments of a candidate's group.

    Args:
        values: of constants by key, as ``facts.task_facts`` has them; None: the table has none.
        without: keys to leave out.
    """
    rows = ["| key | shape | unit | meaning |", "|---|---|---|---|"]
    for key, field in get_spec(name).task_class.fields.items():
        if key in without:
            continue
        shape = "constant" if field.shape is None else str(("n", *field.shape)).replace("'", "")
        value = f": {values[key]}" if values and key in values else ""
        rows.append(f"| `{key}` | {shape} | {field.unit} | {field.meaning}{value} |")
    return "\n".join(rows)
