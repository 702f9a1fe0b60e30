"""Learn a task's properties from a small simulation: its state, constants and goals."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.core.stream import seeded
from envcoder_bench.core.words import cut
from envcoder_bench.sources.isaacgym_tasks import tensors
from envcoder_bench.sources.isaacgym_tasks.driver import TERMS, Driver, make_driver
from envcoder_bench.sources.isaacgym_tasks.importing import one_line
from envcoder_bench.sources.isaacgym_tasks.scene import Scene
from envcoder_bench.sources.isaacgym_tasks.source import Config, Source, group_weights, make_isaac
from envcoder_bench.sources.isaacgym_tasks.tensors import Row, Slot
from envcoder_bench.tasks.base import Field
from envcoder_bench.tasks.sim_task import PROGRESS, actions
from isaacgym_mujoco.old_code import old_calls

LINE_WIDTH = 120  # characters of a quoted line
NUM_ENVS = 37  # a prime that no other axis has as its length, so that axes of this length are environments
_GOAL = re.compile(r"goal|target|command", re.IGNORECASE)
_NO_GOAL = re.compile(r"init|default|prev|cur_|dof|reset|_buf|indices|displacement", re.IGNORECASE)


@dataclass(frozen=True)
class Facts:
    """Properties of a task with a config, as a small simulation shows them."""

    keys: dict[str, Slot]
    rows: dict[Slot, Row]
    fields: dict[str, Field]
    constant_names: tuple[str, ...]
    goal_keys: tuple[str, ...]
    object_keys: tuple[str, ...]
    histories: tuple[str, ...]
    default_action_dim: int
    refusals: dict[str, str]
    terms_have_scales: bool  # those of its own reward
    clips_terms: bool  # their sum


def probe(source: Source, config: Config) -> Facts:
    """Construct a task from a config, take some steps and read its tensors. Raises ValueError if its code raises."""
    if config.get("task", {}).get("randomize"):  # refused in a run; the properties are the same without it
        config = {**config, "task": {**config["task"], "randomize": False}}
    task, driver, scene, before, numbers = _driven(source, config)
    # several critics: columns of the reward
    columns, weights = task.rew_buf[0].numel(), group_weights(config)
    if task.rew_buf.dim() > 1 and len(weights) != columns:
        raise ValueError(
            f"{source.address}: its rew_buf has {columns} columns, one for each critic; they are summed by the weights"
            f" of its config, rewards.reward_group_weights, and there are {len(weights)}"
        )
    # state has a row per environment; constants did not change in the steps
    rows = tensors.rows_of(task, NUM_ENVS)
    reserved = {*scene.keys, "actions", "progress_buf", "reset_buf"}
    keys = {name: slot for name, slot in _named(rows) if name not in reserved and not name.startswith("_")}
    now = tensors.constants_of(task, NUM_ENVS)
    kept = [name for name in now if name in numbers and _same(now[name], numbers[name])]
    constants = tuple(name for name in kept if name not in keys and name not in reserved)
    # a goal changed, and is not part of the scene
    changed = {slot for slot, x in before.items() if not _same(tensors.read(task, slot), x)}
    goals = tuple(name for name, slot in keys.items() if _is_goal(name, slot, rows[slot], changed, task))
    fields = _fields(task, driver, scene, {key: (slot, rows[slot].shape) for key, slot in keys.items()}, constants)
    objects, histories = tuple(scene.objects), tensors.histories_of(task, NUM_ENVS)
    facts = (keys, rows, fields, constants, goals, objects, histories)
    return Facts(*facts, driver.num_actions, scene.refusals, driver.terms.scaled, driver.terms.clipped)


def _driven(source: Source, config: Config) -> tuple[Any, Driver, Scene, dict[Slot, Tensor], dict[str, Any]]:
    """Take some steps; return the task, its driver and scene, and its tensors and constants before the steps."""
    task, gym = make_isaac(source, config, NUM_ENVS, "cpu")
    try:
        driver = make_driver(task, gym)
        driver.terms.on_trial = True
        scene = Scene(gym, task.sim, NUM_ENVS)
        with old_calls(), seeded(0):  # random actions do not change the caller's random numbers
            driver.first()
            before, numbers = _values(task), tensors.constants_of(task, NUM_ENVS)
            for step in range(3):
                driver.act(2.0 * torch.rand(NUM_ENVS, driver.num_actions) - 1.0)
                driver.judge(torch.full((NUM_ENVS,), step))
        if not driver.terms.fit:  # the task makes its reward in another way, too
            driver.terms.drop()
    except Exception as error:
        raise ValueError(f"{source.address} cannot be driven: {one_line(error, source.file.parent)}") from error
    return task, driver, scene, before, numbers


def _fields(
    task: Any,
    driver: Driver,
    scene: Scene,
    keys: Mapping[str, tuple[Slot, tuple[int, ...]]],
    constants: Sequence[str],
) -> dict[str, Field]:
    """Return the declaration of every key; ``keys`` has where a tensor of the task is, and its shape."""
    texts = _Texts(type(task))
    fields = {key: _scene_field(key, scene) for key in scene.keys}
    for key, (slot, shape) in keys.items():
        fields[key] = Field(shape, "?", texts.origin(slot, quoted=True))  # of unknown unit
        if slot[0] == TERMS:
            meaning = f"term of the task's own reward, {'with' if driver.terms.scaled else 'without'} its scale"
            fields[key] = replace(fields[key], meaning=f"{meaning}, {fields[key].meaning}")
    fields["reset_buf"] = Field((), "-", "1 where the task itself ends the episode, time-outs left out")
    fields["actions"] = actions(driver.num_actions)
    fields["progress_buf"] = PROGRESS
    fields.update({key: Field(None, "?", texts.origin((key, ""))) for key in constants})
    return fields


def _values(task: Any) -> dict[Slot, Tensor]:
    return {slot: x.clone() for slot, x in tensors.tensors_of(task)}


def _named(rows: dict[Slot, Row]) -> Iterator[tuple[str, Slot]]:
    """Yield keys of the state and their slots: names of attributes, and keys of dicts."""
    taken = {slot[0] for slot in rows if not slot[1]}
    for slot in rows:
        name = f"{TERMS}_{slot[1]}" if slot[0] == TERMS else slot[1] or slot[0]
        if slot[0] in _NO_STATE or name.endswith(_INDICES) or not name.isidentifier():
            continue
        if not slot[1] or name not in taken:
            yield name, slot


_INDICES = ("_indices", "_idxs", "_ids")  # indices of actors in the whole simulation
_NO_STATE = ("extras", "obs_dict", "episode_sums", "randomize_buf", "timeout_buf", "time_out_buf")


def _is_goal(name: str, slot: Slot, row: Row, changed: set[Slot], task: Any) -> bool:
    x = tensors.read(task, slot)
    if not row.dtype.is_floating_point or row.repeats > 1 or not isinstance(x, Tensor) or slot[1]:
        return False
    if name != "commands" and (not _GOAL.search(name) or _NO_GOAL.search(name) or slot in changed):
        return False
    # a view of a larger tensor of the task is not a goal of its own
    others = [other for where, other in tensors.tensors_of(task) if where != slot and other.numel() > x.numel()]
    return not any(other.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for other in others)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape and bool(torch.equal(a, b))
    return a == b


_SCENE = {
    "root_states": ("m, -, m/s, rad/s", "position, quaternion xyzw, world linear and angular velocity of the robot"),
    "dof_pos": ("rad", "positions of all joints (m for slides)"),
    "dof_vel": ("rad/s", "velocities of all joints (m/s for slides)"),
}  # fmt: skip


def _scene_field(key: str, scene: Scene) -> Field:
    if key in ("dof_pos", "dof_vel"):
        return Field((scene.num_dofs,), *_SCENE[key])
    if key in _SCENE:
        return Field((13,), *_SCENE[key])
    return Field((13,), _SCENE["root_states"][0], f"the actor {key[: -len('_state')]}, as root_states")


class _Texts:
    """The source of a task, searched for the lines that set attributes."""

    def __init__(self, task_class: type) -> None:
        self._files: list[tuple[str, list[str]]] = []
        for cls in task_class.__mro__:  # methods have their module's globals, which are no longer in sys.modules
            codes = [getattr(member, "__code__", None) for member in vars(cls).values()]
            names = dict.fromkeys(code.co_filename for code in codes if code is not None)
            for file in map(Path, names):
                if file.is_file():
                    self._files.append((file.name, file.read_text(encoding="utf-8", errors="replace").splitlines()))

    def origin(self, slot: Slot, quoted: bool = False) -> str:
        """Return where an attribute is first set, or a term of the reward computed, such as ``from ant.py:87``.

        Args:
            quoted: with the line, as a file says nothing to a model that cannot open it.
        """
        name = slot[0]
        patterns = (rf"self\.{name}\b.*=[^=]", rf"\b{name}\b\s*=[^=]")
        if name == TERMS:
            patterns = (rf"def _reward_{slot[1]}\b", rf"\[.{slot[1]}.\] \+=", rf"\b{slot[1]}\s*=[^=]")
        for pattern in patterns:
            for file, lines in self._files:
                for number, line in enumerate(lines, start=1):
                    if re.search(pattern, line) and not line.lstrip().startswith("#"):
                        return f"from {file}:{number}" + (f": `{_line(lines[number - 1 :])}`" if quoted else "")
        return f"from {self._files[0][0]}" if self._files else "from the task"


def _line(lines: Sequence[str]) -> str:
    """Return the first line for a table in Markdown; of a function, what it returns."""
    is_function = lines[0].lstrip().startswith("def ")
    returned = (line for line in lines if line.lstrip().startswith("return "))
    text = next(returned, lines[0]) if is_function else lines[0]
    return cut(text.strip().replace("|", "\\|").replace("`", "'"), LINE_WIDTH)
