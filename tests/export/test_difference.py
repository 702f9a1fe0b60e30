"""How a file's actions are compared with those of the policy that was trained."""

import math
from types import SimpleNamespace

import pytest
import torch

from envcoder_bench.export.write import TOLERANCE, _difference


def difference(wanted, of_file, limit=float("inf")):
    """Of one file's actions, ``(rows, actions)``, from those of a policy."""
    env = SimpleNamespace(task=SimpleNamespace(clip_actions=limit, clip_observations=float("inf")))
    clipped = torch.tensor(of_file).clamp(-limit, limit).numpy()
    return _difference(lambda obs: [clipped], lambda obs: torch.tensor(wanted), env, torch.zeros(len(wanted), 3))


@pytest.mark.filterwarnings("ignore:invalid value")
def test_large_actions_are_compared_as_float32_rounds_them():
    assert difference([[1000.0, 0.5]], [[1000.001, 0.501]]) == pytest.approx(1e-6, rel=0.1)
    assert difference([[1000.0, 0.5], [0.5, -0.5]], [[1000.0, 0.5], [0.5, -0.4999]]) > TOLERANCE
    assert difference([[1000.0, 0.5]], [[999.0, 0.499]], limit=1.0) == pytest.approx(1e-3, rel=0.01)
    assert math.isnan(difference([[math.inf, 0.5]], [[math.inf, 0.5]]))
