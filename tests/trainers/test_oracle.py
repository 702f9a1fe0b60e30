"""K stacked groups after several updates equal K stock rl_games agents on the same rollouts."""

import functools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from kernel_device import DEVICE, compares_kernels
from oracle import Recording, StockAgent, make_params, play, stacked

from envcoder_bench.trainers.ppo.learner import GroupedLearner

OBS_DIMS, ACTION_DIMS, SEEDS = [5, 9, 3], [2, 1, 4], [7, 8, 9]
ITERATIONS = 4  # in which the adaptive rate rises and falls


def compare(
    params: dict[str, Any], folder: Any, dtype: torch.dtype, device: str = "cpu", rtol: float = 0.0, atol: float = 0.0,
    iterations: int = ITERATIONS,
) -> dict[str, torch.Tensor]:  # fmt: skip
    """Train both ways and compare after every iteration; return the learner's statistics ``(iterations, K)``."""
    # mean actions far enough out that the bounds loss bites
    params["network"]["space"]["continuous"]["mu_init"] = {"name": "random_uniform_initializer", "a": -2.0, "b": 2.0}
    num_envs, steps = params["config"]["num_actors"], params["config"]["horizon_length"]
    # not tighter in float64, because rl_games rounds the normalizers' mean and deviation to float32: where float64
    # sums differ in the last bit, these may round the other way, by 6e-8
    if not rtol:
        rtol, atol = (1e-7, 1e-8) if dtype == torch.float64 else (2e-3, 1e-4)
        if device != "cpu" and dtype == torch.float64:
            rtol, atol = 1e-6, 1e-7
    dims = list(zip(OBS_DIMS, ACTION_DIMS, SEEDS))
    recordings = [Recording(o, a, num_envs, iterations * steps, s + 100, dtype) for o, a, s in dims]
    stock = [StockAgent(params, r, s, folder, dtype) for r, s in zip(recordings, SEEDS)]
    learner = GroupedLearner(OBS_DIMS, ACTION_DIMS, SEEDS, params, num_envs, device, dtype)
    rollout = learner.new_rollout()

    def seen(t: int) -> tuple[torch.Tensor, None]:
        return stacked(learner, [r.obs[t] for r in recordings], learner.obs_dim), None

    history: dict[str, list[torch.Tensor]] = {}
    for iteration in range(iterations):
        play(learner, rollout, recordings, iteration * steps, seen)
        expected = [agent.iterate() for agent in stock]
        for name, values in learner.update(rollout, epoch=iteration + 1).items():
            stock_values = torch.tensor([stats[name] for stats in expected], dtype=torch.float64)
            torch.testing.assert_close(values.cpu().double(), stock_values, rtol=10 * rtol, atol=10 * atol)
            history.setdefault(name, []).append(values.cpu())
        for k, agent in enumerate(stock):
            assert learner.export(k).keys() == agent.model.state_dict().keys()
            for key, value in agent.model.state_dict().items():
                mine = own_weights(learner, k, key) if key.startswith("a2c_network") else learner.export(k)[key]
                torch.testing.assert_close(mine, value, rtol=rtol, atol=atol, msg=lambda m, key=key: f"{key}: {m}")
    return {name: torch.stack(values) for name, values in history.items()}


def own_weights(learner: GroupedLearner, k: int, key: str) -> torch.Tensor:
    """One parameter of group k in the learner's own precision, shaped as rl_games'."""
    rows, columns = learner.network.export(k)[key].unsqueeze(0).shape[-2:]
    weights = learner.network.parameters[key].detach()[k].cpu()
    return weights[:columns, :rows].t() if key.endswith("weight") else weights[0, :columns]


MAX_SIGMA = math.exp(-0.3) + 1e-3  # the entropy bonus of its case reaches it within a few updates
SPACE = {"continuous": {**make_params()["network"]["space"]["continuous"], "max_sigma": MAX_SIGMA}}
CASES: dict[str, dict[str, Any]] = {
    "shared": {},
    "separate": {"network__separate": True},
    "standard schedule, smooth clamp": {
        "schedule_type": "standard", "use_smooth_clamp": True, "bound_loss_type": "regularisation",
    },
    "linear schedule, no value clip": {
        "lr_schedule": "linear", "schedule_entropy": True, "clip_value": False, "value_bootstrap": False,
    },
    "constant rate, no normalizers": {
        "lr_schedule": None, "normalize_input": False, "normalize_value": False, "normalize_advantage": False,
    },
    "hard gradient clip": {"grad_norm": 1e-4, "learning_rate": 1e-3},
    "no gradient clip": {"truncate_grads": False, "weight_decay": 0.1},
    "bounded noise": {"entropy_coef": 0.5, "network__space": SPACE},
    "free noise": {"entropy_coef": 0.5},
    "no surrogate": {"ppo": False, "bound_loss_type": "none"},
}  # fmt: skip
LONG = ("shared", "separate", "hard gradient clip", "bounded noise", "free noise")  # what they assert takes longer


@pytest.fixture(name="history_of", scope="module")
def _history_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, torch.Tensor]]:
    """Compare in float64, once per case; return the learner's statistics."""

    @functools.cache
    def history_of(case: str) -> dict[str, torch.Tensor]:
        folder, iterations = tmp_path_factory.mktemp("stock"), ITERATIONS if case in LONG else 2
        return compare(make_params(**CASES[case]), folder, torch.float64, iterations=iterations)

    return history_of


@pytest.mark.parametrize(
    "case", [case if case in ("shared", "separate") else pytest.param(case, marks=pytest.mark.slow) for case in CASES]
)
def test_training_matches_stock_agents(case: str, history_of: Any) -> None:
    history = history_of(case)
    if case != "no surrogate":
        assert (history["bounds_loss"] > 1e-2).any(dim=0).all()
    if case in ("shared", "separate"):
        rates = torch.cat([torch.full((1, 3), 3e-4), history["learning_rate"]])
        assert (rates.diff(dim=0) > 0).any() and (rates.diff(dim=0) < 0).any()  # the rate rose and fell
    # the clips are active in the others
    if case in ("no gradient clip", "linear schedule, no value clip", "hard gradient clip"):
        mine = history["value_loss"]
        assert not torch.allclose(history_of("shared")["value_loss"][: len(mine)], mine, rtol=1e-3)


@pytest.mark.slow
def test_entropy_bonus_raises_the_noise_only_to_its_bound(history_of: Any) -> None:
    bounded, free = history_of("bounded noise"), history_of("free noise")
    most = torch.tensor(ACTION_DIMS) * (0.5 + 0.5 * math.log(2.0 * math.pi) + math.log(MAX_SIGMA))
    assert (free["entropy"][-1] > most).all()  # otherwise the bound would not matter
    assert (bounded["entropy"] <= most + 1e-9).all()
    torch.testing.assert_close(bounded["entropy"][-1], most.double(), rtol=0, atol=1e-3)


def test_training_matches_stock_agents_in_float32(tmp_path: Any) -> None:
    compare(make_params(), tmp_path, torch.float32)


@compares_kernels
@pytest.mark.parametrize("case", ["shared", "separate"])
def test_training_in_kernels_matches_stock_agents(case: str, tmp_path: Any) -> None:
    torch.set_float32_matmul_precision("highest")
    compare(make_params(**CASES[case], mini_epochs=2), tmp_path, torch.float32, device=DEVICE.type)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("case", ["shared", "separate"])
def test_training_matches_stock_agents_on_cuda_in_float64(case: str, tmp_path: Any) -> None:
    torch.set_float32_matmul_precision("highest")
    compare(make_params(**CASES[case]), tmp_path, torch.float64, device="cuda")


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_training_matches_stock_agents_on_cuda_with_tf32(tmp_path: Any) -> None:
    """TF32 rounds factors to 11 bits; at a constant rate, where no threshold is crossed, its effect stays small."""
    torch.set_float32_matmul_precision("high")
    try:
        compare(make_params(lr_schedule=None), tmp_path, torch.float32, device="cuda", rtol=2e-2, atol=5e-3)
    finally:
        torch.set_float32_matmul_precision("highest")
