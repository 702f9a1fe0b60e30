"""Every layer that a policy may have, as ONNX."""

import onnx
import pytest
import torch
from onnx.reference import ReferenceEvaluator
from torch import nn

from envcoder_bench.core.errors import UserError
from envcoder_bench.export.module import Affine, ExportedPolicy
from envcoder_bench.export.onnx_file import onnx_bytes, onnx_runner
from envcoder_bench.trainers.ppo.hyperparameters import ACTIVATIONS
from envcoder_bench.trainers.ppo.policy import _ACTIVATIONS, Clip, Normalizer

INF = torch.inf
COMMAND = Affine(torch.tensor([[2.0, 0.0], [0.5, -1.0], [0.0, 0.0]]), torch.tensor([0.1, 0.2, 0.0]),
                 torch.tensor([-INF, -0.1, -INF]), torch.tensor([INF, 0.1, 0.0]))  # fmt: skip


def module(*layers, command=COMMAND, clip=INF):
    torch.manual_seed(0)
    return ExportedPolicy(nn.Sequential(*layers), 5.0, clip, command)


def assert_same(policy, width):
    content = onnx_bytes(policy, width, "a policy")
    onnx.checker.check_model(onnx.load_from_string(content), full_check=True)
    obs = 4.0 * torch.randn(64, width, generator=torch.Generator().manual_seed(1))
    wanted = policy(obs)
    reference = ReferenceEvaluator(onnx.load_from_string(content)).run(None, {"obs": obs.numpy()})
    for got in (onnx_runner(content)(obs.numpy()), reference):
        assert len(got) == len(wanted)
        for x, y in zip(got, wanted):
            torch.testing.assert_close(torch.as_tensor(x), y, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_match_torch(name):
    assert_same(module(nn.Linear(3, 8), _ACTIVATIONS[name](), nn.Linear(8, 2)), 3)


def test_normalization_clipping_and_commands_match_torch():
    normalizer = Normalizer(torch.tensor([1.0, -2.0, 0.0]), torch.tensor([4.0, 0.01, 1.0]))
    assert_same(module(normalizer, nn.Linear(3, 2), nn.Tanh(), Clip(0.7)), 3)
    assert_same(module(nn.Linear(3, 2), command=None, clip=0.5), 3)
    assert_same(module(nn.Linear(3, 2), clip=0.5), 3)


def test_unsupported_layer_is_refused_by_name():
    with pytest.raises(UserError, match="a layer Hardswish cannot be exported as onnx: use --format torchscript"):
        onnx_bytes(module(nn.Linear(3, 2), nn.Hardswish()), 3, "")
