"""Save and restore an Isaac Gym task: its tensors and numbers, its simulation, and the adapter's state."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.tasks.isaacgym_tasks import tensors
from envcoder_bench.tasks.isaacgym_tasks.gym_proxy import GymProxy
from envcoder_bench.tasks.isaacgym_tasks.randomizer import Randomizer
from envcoder_bench.tasks.isaacgym_tasks.scene import Scene


def save_task(task: Any) -> dict[str, Tensor]:
    """Copy a task's tensors to the CPU.

    Keys are ``task.<attribute>.<key>``, for lists of tensors ``sequence.<attribute>.<index>``, and for numbers
    ``number.<attribute>``.
    """
    saved = {f"task.{'.'.join(slot)}": x.to("cpu", copy=True) for slot, x in tensors.tensors_of(task)}
    for name, sequence in tensors.sequences_of(task):
        saved.update({f"sequence.{name}.{k}": x.to("cpu", copy=True) for k, x in enumerate(sequence)})
    saved.update({f"number.{name}": x for name, x in exact(tensors.numbers_of(task)).items()})
    return saved


def restore_task(task: Any, state: Mapping[str, Tensor], device: torch.device) -> None:
    """Restore what ``save_task`` returned; tensors of equal shape are overwritten in place."""
    for key, x in state.items():
        kind, _, name = key.partition(".")
        if kind == "task":
            attribute, _, entry = name.partition(".")
            tensor = tensors.read(task, (attribute, entry))
            if isinstance(tensor, Tensor) and tensor.shape == x.shape and tensors.writable(tensor):
                tensor.copy_(x)
            else:
                tensors.write(task, (attribute, entry), x.to(device, copy=True))
        elif kind == "sequence":
            attribute, _, index = name.partition(".")
            _restore_element(getattr(task, attribute), int(index), x.to(device, copy=True))
        elif kind == "number":
            now, value = getattr(task, name, None), x.item()
            setattr(task, name, type(now)(value) if isinstance(now, (bool, int)) else value)


def _restore_element(sequence: Any, index: int, x: Tensor) -> None:
    """Set an element of a list or deque; a sequence that is shorter in a new instance grows."""
    if index >= len(sequence):
        sequence.append(x)
    elif isinstance(sequence, list) and sequence[index].shape == x.shape and tensors.writable(sequence[index]):
        sequence[index].copy_(x)  # it may be a view of another tensor
    else:  # a history, whose elements may be one tensor now
        sequence[index] = x


def exact(numbers: Mapping[str, Any]) -> dict[str, Tensor]:
    """Convert numbers to tensors that hold them exactly."""
    tensors_by_name: dict[str, Tensor] = {}
    for name, value in numbers.items():
        if isinstance(value, float):
            tensors_by_name[name] = torch.tensor(value, dtype=torch.float64)
        elif isinstance(value, (bool, int)) and abs(value) < 2**62:
            tensors_by_name[name] = torch.tensor(value)
    return tensors_by_name


class Checkpoint:
    """Everything that a checkpoint of an environment holds.

    Args:
        isaac: the task.
        gym, scene, randomizer: its gym, its simulation, and its randomization if it is enabled.
        live: tensors of the adapter by kind and key, which stay in place.
        progress: steps of each episode.
    """

    def __init__(
        self,
        isaac: Any,
        gym: GymProxy,
        scene: Scene,
        randomizer: Randomizer | None,
        live: Mapping[str, Mapping[str, Tensor]],
        progress: Tensor,
    ) -> None:
        self._isaac, self._gym, self._scene, self._randomizer = isaac, gym, scene, randomizer
        self._live, self._progress = live, progress

    def get_state(self) -> dict[str, Tensor]:
        """Return the state as CPU tensors."""
        saved = save_task(self._isaac)
        saved.update({f"sim.{key}": x for key, x in self._scene.get_state().items()})
        saved.update({f"own.{key}": x for key, x in self._scene.own_properties.get_state().items()})
        for kind, live in self._live.items():
            saved.update({f"{kind}.{key}": x.to("cpu", copy=True) for key, x in live.items()})
        if self._randomizer is not None:
            saved.update({f"random.{key}": x for key, x in self._randomizer.get_state().items()})
        return {**saved, "progress": self._progress.to("cpu", copy=True)}

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what ``get_state`` returned."""
        if self._randomizer is not None:  # first, because the scene computes poses from properties
            random = {key[len("random.") :]: x for key, x in state.items() if key.startswith("random.")}
            self._randomizer.set_state(random)
        self.restore(state)

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore a state, except the randomization."""
        properties = {key[len("own.") :]: x for key, x in state.items() if key.startswith("own.")}
        self._scene.own_properties.set_state(properties)  # first, because the scene computes poses from properties
        self._scene.set_state({key[4:]: x for key, x in state.items() if key.startswith("sim.")})
        self._gym.changed()
        restore_task(self._isaac, state, self._progress.device)
        for kind, live in self._live.items():
            for key, x in live.items():
                x.copy_(state[f"{kind}.{key}"])
        self._progress.copy_(state["progress"])
