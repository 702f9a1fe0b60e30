"""rsl_rl's PPO on recorded rollouts, as an oracle for the grouped learner with the keys of ``PARAMS``.

PYTHONPATH=tests/trainers python -m rsl_rl_oracle   # with rsl-rl-lib==5.4.2: writes rsl_rl_update.json
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from oracle import make_params, play, stacked
from torch import Tensor

from envcoder_bench.core import noise
from envcoder_bench.core.purposes import Purpose
from envcoder_bench.trainers.ppo.learner import GroupedLearner

FILE = Path(__file__).with_name("rsl_rl_update.json")
VERSION = "5.4.2"  # which mjlab 1.6.0 requires
NUM_ENVS, STEPS, ITERATIONS = 6, 8, 3
_TIME = Purpose.COMMAND  # the purpose of its random numbers

Weights = dict[str, Tensor]


def params(units: list[int], **overrides: Any) -> dict[str, Any]:
    """The params that stand for ``ALGORITHM``; keyword arguments as of ``make_params``."""
    config: dict[str, Any] = {
        "reward_shaper": {"scale_value": 1.0}, "normalize_value": False, "empirical_normalization": True,
        "schedule_type": "rollout", "kl_threshold": 0.01, "grad_norm_per_network": True, "critic_coef": 2.0,
        "bounds_loss_coef": None, "clip_actions": False, "learning_rate": 1e-3, "mini_epochs": 5,
        "matmul_precision": "highest",
    }  # fmt: skip
    own = make_params(network__separate=True, **{**config, **overrides})
    own["network"]["mlp"]["units"] = units
    own["network"]["space"]["continuous"].update(
        std_type="scalar", sigma_init={"name": "const_initializer", "val": 0.0}
    )
    return own


def algorithm(own: dict[str, Any]) -> dict[str, Any]:
    """rsl_rl's names of the same numbers, as mjlab's ``rl_cfg`` has them."""
    config = own["config"]
    return {
        "num_learning_epochs": config["mini_epochs"], "num_mini_batches": config["num_minibatches"],
        "clip_param": config["e_clip"], "gamma": config["gamma"], "lam": config["tau"],
        "value_loss_coef": 0.5 * config["critic_coef"], "entropy_coef": config["entropy_coef"],
        "learning_rate": config["learning_rate"], "max_grad_norm": config["grad_norm"],
        "use_clipped_value_loss": config["clip_value"], "desired_kl": config["kl_threshold"],
        "schedule": config["lr_schedule"],
    }  # fmt: skip


@dataclass
class Recording:
    """What a group meets, from counters, so that the numbers are the same on all machines; float64.

    ``obs`` ``(T + 1, n, D)``, ``critic_obs`` (None: the critic sees ``obs``), ``noise`` ``(T, n, A)``, the rest
    ``(T, n)``.
    """

    obs: Tensor
    critic_obs: Tensor | None
    noise: Tensor
    rewards: Tensor
    dones: Tensor
    time_outs: Tensor

    @classmethod
    def of(cls, obs_dim: int, action_dim: int, critic_dim: int, seed: int) -> "Recording":
        steps = ITERATIONS * STEPS

        def draw(t: int, columns: int) -> Tensor:
            return noise.uniform(seed, t, _TIME, NUM_ENVS, columns).double()

        def all_steps(first: int, columns: int, count: int) -> Tensor:
            return torch.stack([draw(first + t, columns) for t in range(count)])

        scale = 1.0 + torch.arange(obs_dim)
        obs = (all_steps(0, obs_dim, steps + 1) * 3.0 - 1.0) * scale
        critic_obs = all_steps(1000, critic_dim, steps + 1) * 4.0 - 1.0 if critic_dim else None
        normal = all_steps(2000, 12 * action_dim, steps).view(steps, NUM_ENVS, action_dim, 12).sum(dim=-1) - 6.0
        rewards, ends, late = (all_steps(first, 1, steps).squeeze(-1) for first in (3000, 4000, 5000))
        dones = ends < 0.2
        return cls(obs, critic_obs, normal, 3.0 * rewards - 1.0, dones, dones & (late < 0.5))


def first_weights(shapes: dict[str, torch.Size], seed: int) -> Weights:
    """Weights by rl_games' keys, from counters; the standard deviation is 1."""
    weights = {}
    for k, (key, shape) in enumerate(shapes.items()):
        drawn = noise.uniform(seed, 9000 + k, _TIME, 1, shape.numel()).double().view(shape)
        weights[key] = torch.zeros(shape).double() if key.endswith("sigma") else 1.2 * drawn - 0.6
    return weights


def train_ours(learner: GroupedLearner, recordings: list[Recording]) -> Iterator[dict[str, Tensor]]:
    """Train on recordings, one of each group; yield the statistics of each iteration."""
    rollout = learner.new_rollout()

    def seen(t: int) -> tuple[Tensor, Tensor | None]:
        obs = stacked(learner, [r.obs[t] for r in recordings], learner.obs_dim)
        critics = [r.critic_obs[t] for r in recordings if r.critic_obs is not None]
        return obs, stacked(learner, critics, learner.critic_dim) if critics else None

    for iteration in range(ITERATIONS):
        play(learner, rollout, recordings, iteration * STEPS, seen)
        yield learner.update(rollout, iteration + 1)


class Stock:
    """rsl_rl's PPO of one group, in float64, with weights by rl_games' keys."""

    def __init__(self, own: dict[str, Any], recording: Recording, weights: Weights) -> None:
        from rsl_rl.algorithms import PPO
        from rsl_rl.models import MLPModel
        from rsl_rl.storage import RolloutStorage

        self.recording, actions = recording, recording.noise.shape[-1]
        units, activation = own["network"]["mlp"]["units"], own["network"]["mlp"]["activation"]
        space = own["network"]["space"]["continuous"]
        with _in_float64():
            groups = {"actor": ["actor"], "critic": ["actor" if recording.critic_obs is None else "critic"]}
            obs = self._obs(0)
            shape = {
                "hidden_dims": units,
                "activation": activation,
                "obs_normalization": own["config"]["normalize_input"],
            }
            distribution = {"class_name": "GaussianDistribution", "init_std": 1.0, "std_type": space["std_type"]}
            actor = MLPModel(obs, groups, "actor", actions, **shape, distribution_cfg=distribution)
            critic_units = own["network"]["mlp"].get("critic_units", units)
            critic = MLPModel(obs, groups, "critic", 1, **{**shape, "hidden_dims": critic_units})
            storage = RolloutStorage("rl", NUM_ENVS, STEPS, obs, [actions], "cpu")
            self.ppo = PPO(actor, critic, storage, **algorithm(own))
            self.ppo.train_mode()
        for key, parameter in self._parameters().items():
            value = weights[key]
            parameter.data.copy_(value.exp() if key.endswith("sigma") and space["std_type"] == "scalar" else value)

    def _parameters(self) -> dict[str, Any]:
        """Parameters by rl_games' keys."""
        named = {}
        for network, head, model in (("actor", "mu", self.ppo.actor), ("critic", "value", self.ppo.critic)):
            layers = [layer for layer in model.mlp if isinstance(layer, torch.nn.Linear)]
            names = [*(f"{network}_mlp.{2 * i}" for i in range(len(layers) - 1)), head]
            for name, layer in zip(names, layers):
                named[f"a2c_network.{name}.weight"], named[f"a2c_network.{name}.bias"] = layer.weight, layer.bias
        distribution: Any = self.ppo.actor.distribution
        named["a2c_network.sigma"] = next(iter(distribution.parameters()))
        return named

    def _obs(self, t: int) -> Any:
        from tensordict import TensorDict

        own = {} if self.recording.critic_obs is None else {"critic": self.recording.critic_obs[t]}
        return TensorDict({"actor": self.recording.obs[t], **own}, batch_size=[NUM_ENVS])

    def train(self) -> Iterator[dict[str, float]]:
        from rsl_rl.modules.distribution import GaussianDistribution

        recording = self.recording
        # minibatches are the learner's, environment by environment; rsl_rl's storage is step by step
        order = torch.arange(STEPS * NUM_ENVS).view(STEPS, NUM_ENVS).t().flatten()
        for iteration in range(ITERATIONS):
            with _in_float64(), mock.patch("torch.randperm", lambda *_, **__: order):
                for t in range(iteration * STEPS, (iteration + 1) * STEPS):

                    def sample(own: Any, t: int = t) -> Tensor:
                        return own.mean + own.std * recording.noise[t]

                    with mock.patch.object(GaussianDistribution, "sample", sample):
                        self.ppo.act(self._obs(t))
                    late = {"time_outs": recording.time_outs[t].double()}
                    self.ppo.process_env_step(self._obs(t + 1), recording.rewards[t], recording.dones[t], late)
                self.ppo.compute_returns(self._obs((iteration + 1) * STEPS))
                losses = self.ppo.update()
            names = {"value": "value_loss", "surrogate": "policy_loss", "entropy": "entropy"}
            yield {**{names[key]: value for key, value in losses.items()}, "learning_rate": self.ppo.learning_rate}

    def weights(self) -> Weights:
        """Parameters as they are learned, and statistics of observations, by rl_games' keys."""
        weights = {key: parameter.detach().clone() for key, parameter in self._parameters().items()}
        for name, model in (("actor", self.ppo.actor), ("critic", self.ppo.critic)):
            if model.obs_normalization:
                weights[f"{name}.mean"] = model.obs_normalizer._mean.squeeze(0).clone()
                weights[f"{name}.var"] = model.obs_normalizer._var.squeeze(0).clone()
        return weights


@contextmanager
def _in_float64() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def our_weights(learner: GroupedLearner, k: int, dims: tuple[int, int, int]) -> Weights:
    """A group's parameters as they are learned, and statistics of observations, as of ``Stock.weights``."""
    weights = {}
    for key, (rows, columns) in learner.network._shapes[k].items():
        value = learner.network.parameters[key][k, :rows, :columns]
        weights[key] = (value.t() if key.endswith(".weight") else value[0]).cpu()
    obs_dim, _, critic_dim = dims
    for name, normalizer, dim in (
        ("actor", learner.obs_normalizer, obs_dim),
        ("critic", learner.critic_normalizer or learner.obs_normalizer, critic_dim or obs_dim),
    ):
        if normalizer is not None:
            weights[f"{name}.mean"] = normalizer.running_mean[k, :dim].cpu()
            weights[f"{name}.var"] = normalizer.running_var[k, :dim].cpu()
    return weights


# the recorded numbers

SMALL: dict[str, tuple[int, int, int]] = {"symmetric": (3, 2, 0), "asymmetric": (3, 2, 5)}  # widths
SMALL_UNITS = [4, 3]


def small_learner(case: str) -> tuple[GroupedLearner, list[Recording]]:
    """The learner of a recorded case, with its first weights."""
    obs_dim, action_dim, critic_dim = SMALL[case]
    learner = GroupedLearner(
        [obs_dim], [action_dim], [0], params(SMALL_UNITS), NUM_ENVS, dtype=torch.float64,
        critic_dims=[critic_dim] if critic_dim else [],
    )  # fmt: skip
    load(learner, 0)
    return learner, [Recording.of(*SMALL[case], seed=1)]


def shapes(learner: GroupedLearner, k: int) -> dict[str, torch.Size]:
    """Shapes of a group's weights as rl_games has them."""
    return {key: x.shape for key, x in learner.network.export(k).items()}


def load(learner: GroupedLearner, k: int) -> Weights:
    """Give a group its first weights, and return them."""
    weights = first_weights(shapes(learner, k), seed=k)
    learner.network.load(k, weights)
    return weights


def main() -> None:
    recorded = {}
    for case in SMALL:
        learner, recordings = small_learner(case)
        stock = Stock(params(SMALL_UNITS), recordings[0], load(learner, 0))
        statistics = list(stock.train())
        weights = {
            key: [float(f"{x:.12g}") for x in value.flatten().tolist()] for key, value in stock.weights().items()
        }
        recorded[case] = {"statistics": statistics, "weights": weights}
    FILE.write_text(json.dumps({"rsl_rl": VERSION, **recorded}, indent=1) + "\n")


if __name__ == "__main__":
    main()
