"""Replacements of functions that wait for a device."""

import pytest
import torch

from envcoder_bench.sources.term_tasks.graphs.on_device import OnDevice, eigh_3x3

VALUES = {
    "any": torch.randn(500, 3),
    "plane": torch.rand(500, 3) * torch.tensor([0.0, 5.0, 20.0]),
    "disc": torch.tensor([0.0, 5.0, 5.0]) + 1e-5 * torch.rand(500, 3),
    "rod": torch.tensor([1.0, 1.0, 7.0]).expand(500, 3),
    "ball": torch.full((500, 3), 2.0),
    "nothing": torch.zeros(500, 3),
}


@pytest.mark.parametrize("kind", VALUES)
def test_eigenvectors_without_a_sync_are_those_of_torch(kind):
    turn = torch.linalg.qr(torch.randn(500, 3, 3))[0]
    x = turn @ torch.diag_embed(VALUES[kind]) @ turn.mT
    x = 0.5 * (x + x.mT)
    size = x.abs().max().clamp(min=1e-30)
    expected, directions = torch.linalg.eigh(x)
    with OnDevice({}):
        values, vectors = torch.linalg.eigh(x)
    assert torch.equal(vectors, eigh_3x3(x)[1])
    assert (values - expected).abs().max() < 3e-6 * size
    assert (vectors @ torch.diag_embed(values) @ vectors.mT - x).abs().max() < 3e-6 * size
    assert (vectors.mT @ vectors - torch.eye(3)).abs().max() < 1e-6
    apart = expected[:, 1] - expected[:, 0] > 0.05 * size
    assert ((vectors[:, :, 0] * directions[:, :, 0]).sum(dim=1).abs()[apart] > 1 - 1e-5).all()
