"""rl_games' A2CAgent, stepped over recorded data, as an oracle for the grouped learner."""

import contextlib
import copy
import io
import math
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from rl_games.algos_torch.a2c_continuous import A2CAgent
from rl_games.common.algo_observer import AlgoObserver
from rl_games.common.ivecenv import IVecEnv
from rl_games.common.tr_helpers import DefaultRewardsShaper
from torch import Tensor

from envcoder_bench.trainers.ppo.learner import GroupedLearner
from envcoder_bench.trainers.ppo.rollout import Rollout


def make_params(**overrides: Any) -> dict[str, Any]:
    """The params of an rl_games YAML for a small MLP; keyword arguments override ``config``, or ``network__KEY``."""
    params: dict[str, Any] = {
        "algo": {"name": "a2c_continuous"},
        "model": {"name": "continuous_a2c_logstd"},
        "network": {
            "name": "actor_critic",
            "separate": False,
            "space": {
                "continuous": {
                    "mu_activation": "None",
                    "sigma_activation": "None",
                    "mu_init": {"name": "default"},
                    "sigma_init": {"name": "const_initializer", "val": -0.3},
                    "fixed_sigma": True,
                }
            },
            "mlp": {"units": [16, 8], "activation": "elu", "d2rl": False, "initializer": {"name": "default"}},
        },
        "config": {
            "name": "test",
            "env_name": "recorded",
            "reward_shaper": {"scale_value": 0.1},
            "normalize_input": True,
            "normalize_value": True,
            "value_bootstrap": True,
            "normalize_advantage": True,
            "gamma": 0.96875,  # these two are exact in float32, to which rl_games rounds their product
            "tau": 0.90625,
            "e_clip": 0.2,
            "entropy_coef": 0.01,
            "learning_rate": 3e-4,
            "lr_schedule": "adaptive",
            "kl_threshold": 0.008,
            "truncate_grads": True,
            "grad_norm": 1.0,
            "horizon_length": 8,
            "num_minibatches": 4,
            "mini_epochs": 3,
            "critic_coef": 2,
            "clip_value": True,
            "bounds_loss_coef": 0.1,
            "max_epochs": 100,
            "print_stats": False,
            "device": "cpu",
            "num_actors": 6,
        },
    }
    for key, value in overrides.items():
        if key.startswith("network__"):
            params["network"][key[len("network__") :]] = value
        else:
            params["config"][key] = value
    return params


class Recording(IVecEnv):
    """An environment that plays back random observations, rewards, dones and time-outs, whatever the actions."""

    def __init__(self, obs_dim: int, action_dim: int, num_envs: int, steps: int, seed: int, dtype: torch.dtype) -> None:
        rng = torch.Generator().manual_seed(seed)
        self.obs_dim, self.action_dim, self.t = obs_dim, action_dim, 0
        scale = torch.rand(obs_dim, generator=rng) * 5
        self.obs = (torch.randn(steps + 1, num_envs, obs_dim, generator=rng) * scale + scale).to(dtype)
        self.rewards = (torch.randn(steps, num_envs, generator=rng) * 3 + 1).to(dtype)
        self.dones = torch.rand(steps, num_envs, generator=rng) < 0.2
        self.time_outs = self.dones & (torch.rand(steps, num_envs, generator=rng) < 0.5)
        self.noise = torch.randn(steps, num_envs, action_dim, generator=rng).to(dtype)

    def get_env_info(self) -> dict[str, Any]:
        return {
            "observation_space": gym.spaces.Box(-np.inf, np.inf, (self.obs_dim,), np.float32),
            "action_space": gym.spaces.Box(-1.0, 1.0, (self.action_dim,), np.float32),
        }

    def reset(self) -> Tensor:
        return self.obs[0]

    def step(self, actions: Tensor):
        t, self.t = self.t, self.t + 1
        return self.obs[t + 1], self.rewards[t], self.dones[t], {"time_outs": self.time_outs[t]}


def pad(x: Tensor, width: int) -> Tensor:
    return torch.nn.functional.pad(x, (0, width - x.shape[-1]))


def stacked(learner: GroupedLearner, rows: Sequence[Tensor], width: int) -> Tensor:
    """One step of all groups, padded to a width, where the learner computes."""
    return torch.stack([pad(x, width) for x in rows]).to(learner.network.flat)


def play(
    learner: GroupedLearner, rollout: Rollout, recordings: Sequence[Any], first: int,
    seen: Callable[[int], tuple[Tensor, Tensor | None]],
) -> None:  # fmt: skip
    """Fill a rollout with what is recorded from a step on, as the agent does.

    ``seen`` gives a step's observations of the policies and of the critics, or None for these.
    """
    envs, steps = rollout.rewards.shape[1:]
    for t in range(steps):
        obs, critic_obs = seen(first + t)
        if t and learner.hp.empirical_normalization:
            learner.count(obs, critic_obs)
        noise = stacked(learner, [recording.noise[first + t] for recording in recordings], learner.action_dim)
        result = learner.act(obs, noise, critic_obs)
        rollout.obs[:, :, t, : learner.obs_dim] = obs
        if rollout.critic_obs is not None and critic_obs is not None:
            rollout.critic_obs[:, :, t, : learner.critic_dim] = critic_obs
        for name in ("actions", "mus", "values"):
            getattr(rollout, name)[:, :, t] = result[name]
        for name in ("rewards", "dones", "time_outs"):
            rows = [getattr(recording, name)[first + t] for recording in recordings]
            getattr(rollout, name)[:, :, t] = stacked(learner, rows, envs)
    obs, critic_obs = seen(first + steps)
    if learner.hp.empirical_normalization:
        learner.count(obs, critic_obs)
    rollout.last_values.copy_(learner.values(obs if critic_obs is None else critic_obs))


class StockEnv(IVecEnv):
    """An environment of one group as rl_games sees it."""

    def __init__(self, env: Any) -> None:
        self.env = env

    def get_env_info(self) -> dict[str, Any]:
        return {
            "observation_space": gym.spaces.Box(-np.inf, np.inf, (self.env.obs_dims[0],), np.float32),
            "action_space": gym.spaces.Box(-1.0, 1.0, (self.env.action_dims[0],), np.float32),
        }

    def reset(self) -> Tensor:
        return self.env.reset()

    def step(self, actions: Tensor):
        step = self.env.step(actions)
        return step.obs, step.reward, step.done, {"time_outs": step.truncated}


class StockAgent(A2CAgent):
    """rl_games' agent, except that actions are sampled with recorded noise, and their deviation is bounded."""

    def __init__(self, params: dict[str, Any], env: Any, seed: int, folder: Any, dtype: torch.dtype) -> None:
        params = copy.deepcopy({k: v for k, v in params.items()})
        config = params["config"]
        config["features"] = {"observer": AlgoObserver()}
        config["reward_shaper"] = DefaultRewardsShaper(**config["reward_shaper"])
        config["env_info"], config["train_dir"] = env.get_env_info(), str(folder)
        config["minibatch_size"] = config["horizon_length"] * config["num_actors"] // config.pop("num_minibatches")
        with contextlib.redirect_stdout(io.StringIO()), torch.random.fork_rng():
            torch.manual_seed(seed)
            super().__init__("run", params)
        self.vec_env = env
        self.model.a2c_network.to(dtype)  # the normalizers' statistics are float64 already
        self.init_tensors()
        buffers = self.experience_buffer.tensor_dict
        for key, value in buffers.items():
            buffers[key] = value.to(dtype) if value.is_floating_point() else value
        self.obs = self.env_reset()
        bound = params["network"]["space"]["continuous"].get("max_sigma")  # not a key of rl_games
        if bound is not None:
            sigma = self.model.a2c_network.sigma
            self.optimizer.register_step_post_hook(lambda *_: sigma.data.clamp_(max=math.log(bound)))

    def get_action_values(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        result = super().get_action_values(obs)
        result["actions"] = result["mus"] + result["sigmas"] * self.vec_env.noise[self.vec_env.t]
        sigma = result["sigmas"]
        result["neglogpacs"] = self.model.neglogp(result["actions"], result["mus"], sigma, torch.log(sigma))
        return result

    def iterate(self) -> dict[str, float]:
        """Run one iteration; statistics as in the grouped learner."""
        self.update_epoch()
        _, _, _, _, a_losses, c_losses, b_losses, entropies, kls, _, _ = self.train_epoch()
        names = ("policy_loss", "value_loss", "bounds_loss", "entropy", "kl")
        lists = (a_losses, c_losses, b_losses, entropies, kls)
        means = {name: torch.stack(values).mean().item() for name, values in zip(names, lists)}
        return {**means, "learning_rate": self.last_lr}
