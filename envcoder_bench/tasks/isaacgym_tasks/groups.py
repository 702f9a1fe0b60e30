"""Groups of environments: all as one group, groups built as a group alone, and a warning of groups that differ."""

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from envcoder_bench.tasks.base import EnvGroups
from envcoder_bench.tasks.isaacgym_tasks import tensors
from envcoder_bench.tasks.isaacgym_tasks.driver import Driver
from envcoder_bench.tasks.isaacgym_tasks.scene import Scene
from envcoder_bench.tasks.isaacgym_tasks.tensors import Row, Slot

_NUMBERED = re.compile(r"ind(ex|ic)|handle|ids?$")  # tensors of indices of actors and bodies in the whole simulation


# operators whose result in a row is the same wherever the row is in a longer tensor: copies, comparisons, arithmetic
# that IEEE 754 rounds exactly, draws by row; a vectorized exponential may round otherwise at the end of a tensor
_BY_ROW = set(
    """
    abs add alias __and__ arange as_strided bitwise_and bitwise_not bitwise_or bitwise_xor cat ceil clamp clamp_max
    clamp_min clone contiguous copy detach div empty empty_like empty_strided eq expand expand_as fill flatten floor
    floor_divide full full_like gather ge gt index index_put _index_put_impl index_select le lift_fresh logical_and
    logical_not logical_or __lshift__ lt masked_fill maximum minimum mul ne neg new_empty new_ones new_zeros nonzero
    ones ones_like __or__ permute rand rand_like randint reciprocal remainder repeat reshape _reshape_alias
    resolve_conj resolve_neg round __rshift__ rsub scalar_tensor scatter select sign slice split sqrt squeeze stack
    sub t to _to_copy transpose type_as unbind uniform _unsafe_view unsqueeze view view_as where __xor__ zero zeros
    zeros_like
    """.split()  # noqa: SIM905
)


class ByRow(TorchDispatchMode):
    """Notes the other operators, by name, in ``others``."""

    def __init__(self) -> None:
        super().__init__()
        self.others: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func._schema.name.partition("::")[2]
        short = name if name.endswith("__") else name.removesuffix("_")
        if short not in _BY_ROW and not (
            name == "linalg_vector_norm" and args[0].shape[-1] <= 4 and args[2:3] == ([-1],)
        ):
            self.others.add(name)
        return func(*args, **(kwargs or {}))


def one_group(num_envs: int, num_actions: int, device: torch.device) -> EnvGroups:
    """Return all environments as a group with seed 0 and the task's own shaping."""
    nowhere = torch.zeros(num_envs, dtype=torch.bool, device=device)
    return EnvGroups(
        seeds=torch.zeros(num_envs, dtype=torch.int64, device=device),
        lanes=torch.arange(num_envs, device=device),
        actions=torch.zeros(num_envs, num_actions, device=device),
        commands=nowhere,
        initial_states=nowhere,
        goals=nowhere,
    )


def make_groups_alike(
    isaac: Any, rows: Mapping[Slot, Row], histories: Sequence[str], driver: Driver, scene: Scene, lanes: Tensor
) -> bool:
    """Copy what the task drew or placed at its construction from the first environment of each lane.

    Frictions, masses, origins and terrain levels of a group are then independent of other groups.

    Args:
        isaac: the task.
        rows: its tensors that have rows for each environment.
        histories: its lists and deques of such tensors.
        lanes: ``(num_envs,)``, the index of each environment in its group.

    Returns:
        Whether there is more than one group; a single one is left as it is.
    """
    num_envs = len(lanes)
    if bool((lanes == torch.arange(num_envs, device=lanes.device)).all()):
        return False
    # tensors with a row, or several, for each environment
    for slot, row in rows.items():
        x = tensors.read(isaac, slot)
        if not isinstance(x, Tensor) or x.dim() == 0 or x.shape[0] != num_envs * row.repeats:
            continue
        if tensors.writable(x) and (x.is_floating_point() or not _NUMBERED.search("".join(slot))):
            rows_of_lanes = x.reshape(num_envs, row.repeats, *x.shape[1:])[lanes.to(x.device)]
            x.copy_(rows_of_lanes.reshape(x.shape))
    for name in histories:
        for x in getattr(isaac, name):
            x.copy_(x[lanes.to(x.device)])
    driver.place(lanes)
    scene.make_alike(lanes)
    return True


log = logging.getLogger(__name__)
TOLERANCE = 1e-4  # rounding may depend on an environment's place in a tensor
_told: set[str] = set()


def tell_unequal_beginnings(address: str, state: Mapping[str, Tensor], seeds: Tensor, lanes: Tensor) -> None:
    """Warn once per task if groups of one seed begin with different states, which is unfair to some of them.

    Random numbers of such groups are equal, so that the task's code treats environments by their index in all groups.

    Args:
        address: of the task.
        state: tensors ``(num_envs, ...)`` after the task's own reset of all environments.
        seeds, lanes: ``(num_envs,)``, the seed of each environment's group, and its index in the group.
    """
    size = int(lanes.max()) + 1
    seed = seeds.view(-1, size)[:, 0]
    same = (seed == seed[0]).nonzero().flatten()
    if address in _told or len(same) < 2:
        return
    differ = []
    for key, x in state.items():
        groups = x.reshape(len(seed), size, -1)[same].float()
        if not torch.allclose(groups, groups[:1].expand_as(groups), TOLERANCE, TOLERANCE, equal_nan=True):
            differ.append(key)
    if differ:
        _told.add(address)
        log.warning(
            "%s: candidates of one seed begin with different %s: the task's code distinguishes environments by their"
            " index among those of all candidates. For a fair ranking give --isolate process",
            address,
            ", ".join(differ),
        )
