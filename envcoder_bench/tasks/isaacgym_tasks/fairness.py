"""Warn of tasks whose candidates do not begin alike."""

import logging
from collections.abc import Mapping

import torch
from torch import Tensor

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
