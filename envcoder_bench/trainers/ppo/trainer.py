"""The trainer of grouped PPO, which is equivalent to one rl_games A2CAgent per group."""

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.core.groups import GroupLayout, common
from envcoder_bench.core.torch_settings import is_deterministic
from envcoder_bench.env.base import EnvStep
from envcoder_bench.trainers.base import MemoryEstimate, Params, Stats, Widths, padded_widths, widest
from envcoder_bench.trainers.blocks import BlockTrainer, CapturedFunction, cut_equal_blocks
from envcoder_bench.trainers.ppo import acting, hyperparameters
from envcoder_bench.trainers.ppo.architecture import estimate, learner_bytes
from envcoder_bench.trainers.ppo.backend import Backend
from envcoder_bench.trainers.ppo.block import LearnerBlock, draw_noise, new_noise
from envcoder_bench.trainers.ppo.group_numbers import group_numbers
from envcoder_bench.trainers.ppo.hyperparameters import Hyperparameters
from envcoder_bench.trainers.ppo.learner import GroupedLearner
from envcoder_bench.trainers.ppo.policy import policy_module
from envcoder_bench.trainers.ppo.rollout import StepIndex


class GroupedPPO(BlockTrainer):
    """Trains the groups in blocks: on CPU one for each group, on CUDA as few as the memory allows.

    Groups with critic observations are in other blocks than the rest. With ``use_deterministic_algorithms`` the groups
    of a block on CUDA are padded to widths that depend on each group alone, because padding changes the order of sums.

    ``params`` are those of an rl_games YAML; ``minibatch_size`` (or ``num_minibatches``) is that of one group. The
    constructor sets torch's precision of float32 products, ``matmul_precision``, for the whole process.

    Statistics: ``kl``, ``learning_rate``, ``entropy``, ``policy_loss``, ``value_loss`` and ``bounds_loss``.

    Raises:
        ValueError: the params have an unsupported feature; names key and remedy.
    """

    sections = (
        "config.reward_shaper", "model", "network", "network.mlp", "network.space", "network.space.continuous",
    )  # fmt: skip
    deterministic = True

    def __init__(
        self,
        layout: GroupLayout,
        obs_dims: Sequence[int],
        action_dims: Sequence[int],
        seeds: Sequence[int],
        params: Params,
        device: torch.device,
        critic_dims: Sequence[int] = (),
        numbers: Sequence[Mapping[str, float]] = (),
    ) -> None:
        self._settings = hp = Hyperparameters.from_params(params, layout.envs_per_group)
        torch.set_float32_matmul_precision(hp.matmul_precision)
        self.horizon = hp.horizon_length
        self._backend = backend = Backend.choose(device)
        if device.type == "cuda" and is_deterministic() and not backend.fixed_order:
            raise ValueError("deterministic training on CUDA needs Triton: pip install triton")

        groups, n = layout.num_groups, layout.envs_per_group
        critic_dims = list(critic_dims) or [0] * groups
        widths = list(zip(obs_dims, action_dims, critic_dims))
        greatest = widest(widths)
        self._begin(layout, device, greatest[0])
        self._answers = torch.zeros(3, groups, n, self.horizon, device=device)  # rewards, dones, time-outs
        self.blocks = [
            LearnerBlock(
                backend, members, obs_dims[members], action_dims[members], seeds[members], params, n, device,
                self._answers, critic_dims[members] if any(critic_dims[members]) else (), numbers[members],
            )
            for members in _cut_blocks(backend, widths, params, n, device)
        ]  # fmt: skip
        self._noise = new_noise(self.blocks, self.horizon)

        self._buffers = threading.local()  # one buffer for updates per thread

        # captured graphs read fixed tensors
        self._seen = torch.zeros(groups, n, greatest[0], device=device)
        self._seen_by_critic = torch.zeros(groups, n, greatest[2], device=device) if greatest[2] else None
        self._action_width = greatest[1]
        self._act_next = CapturedFunction(self._act_and_count, device, self._pool)
        self._count_seen = CapturedFunction(self._count, device, self._pool)
        # a linear schedule computes its values on the host, which cannot be captured
        pool = None if hp.lr_schedule == "linear" else self._pool
        self._updates = [CapturedFunction(partial(self._update, block), device, pool) for block in self.blocks]

        self._dead = torch.zeros(groups, dtype=torch.bool, device=device)

    @classmethod
    def keys(cls) -> Sequence[str]:
        return hyperparameters.keys()

    @classmethod
    def check(cls, params: Params, num_envs: int) -> None:
        GroupedLearner([4], [2], [0], params, num_envs)

    @classmethod
    def memory(cls, params: Params, num_envs: int, num_seeds: int, device: torch.device) -> MemoryEstimate:
        return estimate(params, num_envs, num_seeds, device)

    @classmethod
    def critic_refusal(cls, params: Params) -> str | None:
        if params["network"].get("separate", False):
            return None
        key = "params.network.separate"
        return f"{key}: a critic with observations of its own needs a network of its own; set train.{key}=True"

    @classmethod
    def group_numbers(cls, params: Params) -> Mapping[str, float | str]:
        return group_numbers(params)

    @classmethod
    def depends_on_length(cls, params: Params) -> bool:
        return params["config"]["lr_schedule"] == "linear"

    def set_alive(self, alive: Sequence[bool]) -> None:
        if list(alive) != self._alive:
            self._alive = list(alive)
            self._dead = torch.tensor(self._alive, device=self._device).logical_not_()
            for block in self.blocks:
                block.set_alive(self._alive[block.groups])

    @torch.no_grad()
    def act(self, obs: Tensor, critic_obs: Tensor | None = None) -> Tensor:
        if self._step == 0:
            draw_noise(self.blocks, self.epoch * self.horizon, self._noise)
            self._device_step.zero_()
        self._look(obs, critic_obs)
        if self._step > 0 and self._counts:  # the last rollout has counted the first observations
            self._count_seen()
        return self._act(self._step) if self._pool is None else self._act_next()

    @property
    def _counts(self) -> bool:
        """Whether the statistics of observations are updated on every step."""
        return self._settings.normalize_input and self._settings.empirical_normalization

    def _count(self) -> None:
        for block in self.blocks:
            if block.active or self._pool is not None:
                block.count(self._seen, self._seen_by_critic)

    def _look(self, obs: Tensor, critic_obs: Tensor | None) -> None:
        """Copy observations to the buffers that acting and updating read."""
        seen = self._layout.split(obs)
        critics_see = None if critic_obs is None else self._layout.split(critic_obs)
        if self._pool is None:
            self._seen, self._seen_by_critic = seen, critics_see
            return
        self._seen.copy_(seen)
        if self._seen_by_critic is not None and critics_see is not None:
            self._seen_by_critic.copy_(critics_see)

    def _act(self, t: StepIndex) -> Tensor:
        """Sample step t's actions ``(num_envs, act_max)`` for the environment."""
        actions = self._seen.new_zeros(*self._seen.shape[:2], self._action_width)
        for block in self.blocks:
            if block.active or self._pool is not None:  # captured graphs include dead groups
                block.act(t, self._seen, self._seen_by_critic, self._noise[block.noise_key], actions)
        return self._clip(self._layout.merge(actions))

    def _clip(self, actions: Tensor) -> Tensor:
        return actions.clamp_(-1.0, 1.0) if self._settings.clip_actions else actions

    def record(self, step: EnvStep) -> None:
        acting.record(self._backend.kernels, step.reward, step.terminated, step.truncated, self._answers, self._step)
        self._step += 1

    def learn(self, last_obs: Tensor, last_critic_obs: Tensor | None = None) -> Stats:
        self.epoch += 1
        self._step = 0
        self._look(last_obs, last_critic_obs)
        if self._counts:
            self._count_seen()
        # the statistics of blocks whose groups all failed stay NaN
        active = [(block, update) for block, update in zip(self.blocks, self._updates) if block.active]
        results = self._run(update for _, update in active)
        stats: dict[str, Tensor] = {}
        for (block, _), block_stats in zip(active, results):
            for name, values in block_stats.items():
                empty = torch.full((self._layout.num_groups,), float("nan"), device=self._device)
                stats.setdefault(name, empty)[block.groups] = values.to(torch.float32)
        for values in stats.values():
            values.masked_fill_(self._dead, float("nan"))
        return stats

    def _update(self, block: LearnerBlock) -> dict[str, Tensor]:
        if not hasattr(self._buffers, "tensor"):
            size = max(each.learner.workspace_size() for each in self.blocks)
            self._buffers.tensor = torch.empty(size, device=self._device)
        return block.update(self._seen, self._seen_by_critic, self.epoch, self._buffers.tensor)

    @torch.no_grad()
    def _mean_actions(self, layout: GroupLayout, obs: Tensor) -> Tensor:
        actions = obs.new_zeros(*obs.shape[:2], self._action_width)
        for block in self.blocks:
            if block.active or self._pool is not None:
                block.act_deterministically(obs, actions)
        return self._clip(layout.merge(actions))

    def export(self, group: int) -> dict[str, Any]:
        block, member = self._find(group)
        exported = self._exported(block.learner.export(member))
        central_value = block.learner.export_central_value(member)
        return exported if central_value is None else {**exported, "assymetric_vf_nets": central_value}  # rl_games' key

    @classmethod
    def load_policy(cls, params: Params, exported: Mapping[str, Any]) -> torch.nn.Module:
        try:
            return policy_module(params, exported["model"])
        except (KeyError, RuntimeError, TypeError) as error:
            raise ValueError(f"the policy does not fit the network of the config: {error}") from error

    def get_state(self) -> dict[str, Any]:
        return {"learners": [block.learner.get_state() for block in self.blocks], "epoch": self.epoch}

    def set_state(self, state: Mapping[str, Any]) -> None:
        states = state["learners"]
        if len(states) != len(self.blocks):
            raise ValueError(
                f"the checkpoint has {len(states)} learners and this run has {len(self.blocks)}: resume with the same"
                " candidates and seeds, on the same kind of device (CPU or CUDA)"
            )
        for block, learner in zip(self.blocks, states):
            block.learner.set_state(learner)
        self.epoch = state["epoch"]

    def split_state(self, state: Mapping[str, Any]) -> list[dict[str, Any]]:
        blocks = zip(self.blocks, state["learners"])
        parts = [part for block, learner in blocks for part in block.learner.split_state(learner)]
        return [{"learner": part, "epoch": state["epoch"]} for part in parts]

    def join_states(self, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        learners = [part["learner"] for part in parts]
        states = [block.learner.join_states(learners[block.groups]) for block in self.blocks]
        return {"learners": states, "epoch": common(parts, "epoch")}


def _cut_blocks(
    backend: Backend, widths: Sequence[Widths], params: Params, num_envs: int, device: torch.device
) -> list[slice]:
    """Divide groups into blocks that learn together, by their widths."""
    keys: Sequence[object] = [critic_dim > 0 for _, _, critic_dim in widths]
    greatest = widest(widths)
    if backend.fixed_order:
        keys, greatest = [padded_widths(*each) for each in widths], padded_widths(*greatest)
    if device.type == "cpu":  # a learner per group, because matrix products may round differently in a larger batch
        return cut_equal_blocks(keys, 1)
    obs_max, act_max, critic_max = greatest
    most = learner_bytes(obs_max, act_max, num_envs, params, device, critic_max).at_once(len(widths))
    return cut_equal_blocks(keys, most)
