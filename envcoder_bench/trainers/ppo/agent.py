"""rl_games' A2CAgent for many groups: the same config, environment, observers and checkpoints, one policy per group."""

from __future__ import annotations

import contextlib
import io
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Callable, Mapping

import torch
from rl_games.algos_torch.a2c_continuous import A2CAgent
from rl_games.common.a2c_common import ContinuousA2CBase
from rl_games.common.algo_observer import AlgoObserver
from tensorboardX import SummaryWriter
from torch import Tensor

from envcoder_bench.core.cpus import usable_cpus
from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.core.profiling import span
from envcoder_bench.trainers.ppo.capture import Captured
from envcoder_bench.trainers.ppo.footprint import learner_bytes
from envcoder_bench.trainers.ppo.rollout import Met, Step
from envcoder_bench.trainers.ppo.settings import check_supported
from envcoder_bench.trainers.ppo.shard import Shard, draw_noise, new_noise, shard_blocks

ALGO_NAME = "grouped_a2c_continuous"


def register(runner: Any) -> None:
    """Make ``params.algo.name: grouped_a2c_continuous`` known to an ``rl_games.torch_runner.Runner``."""
    runner.algo_factory.register_builder(ALGO_NAME, lambda **kwargs: GroupedA2CAgent(**kwargs))


class GroupedA2CAgent(A2CAgent):
    """Trains one policy for each group of a vectorized environment.

    The environment offers, besides rl_games' IVecEnv, ``layout``, ``obs_dims``, ``action_dims``, ``group_seeds`` and
    ``alive``, one per group. It comes from rl_games' registry, or as ``params["config"]["vec_env"]``. ``num_actors`` is
    the environment's own number; ``minibatch_size`` (or ``num_minibatches``) counts for one group.

    Attributes:
        group_stats: of the last iteration, ``(num_groups,)`` each: kl, learning_rate, entropy, policy_loss,
            value_loss, bounds_loss; NaN for groups that have failed.
        stop: set it to end the training after this iteration.

    Raises:
        ValueError: the config asks for what grouped training cannot do; names key and remedy.
    """

    # rl_games leaves these to be set later, or sets what the learners keep per group
    vec_env: Any
    obs: Any
    writer: Any
    model: Any
    optimizer: Any

    def __init__(self, base_name: str, params: dict[str, Any]) -> None:
        check_supported(params)
        _init_stock(self, base_name, params)
        env = self.vec_env
        self.layout: GroupLayout = env.layout
        self.ppo_device = torch.device(self.ppo_device)
        num_groups, n = self.layout.num_groups, self.layout.envs_per_group
        on_cpu = self.ppo_device.type == "cpu"
        # on CPU a learner per group: a product of matrices may round differently in a larger batch
        widest = max(env.obs_dims), max(env.action_dims)
        largest = 1 if on_cpu else learner_bytes(*widest, n, params).groups_at_once
        self._met = Met.empty(num_groups, n, self.horizon_length, torch.empty(0, device=self.ppo_device))
        self.shards = [
            Shard(
                block, env.obs_dims[block], env.action_dims[block], env.group_seeds[block], params, n, self.ppo_device,
                self._met,
            )
            for block in shard_blocks(num_groups, largest)
        ]  # fmt: skip
        settings = self.shards[0].learner.settings
        torch.set_float32_matmul_precision(settings.matmul_precision)
        self._noise = new_noise(self.shards, self.horizon_length)
        self._threads: ThreadPoolExecutor | None = None
        if on_cpu:
            torch.set_num_threads(1)  # the threads go to the shards, which run side by side
            self._threads = ThreadPoolExecutor(usable_cpus(), initializer=_prepare_worker)
        self._memory = threading.local()  # of each thread: what an update works in
        # observations and step, where graphs find them
        self._seen = torch.zeros(num_groups, n, widest[0], device=self.ppo_device)
        self._t = torch.zeros(1, dtype=torch.int64, device=self.ppo_device)
        self._pool = None if on_cpu else torch.cuda.graph_pool_handle()
        self._act_next = Captured(self._act_and_count, self.ppo_device, self._pool)
        # a linear schedule computes its values on the host, which a graph would freeze
        pool = None if settings.lr_schedule == "linear" else self._pool
        self._updates = [Captured(partial(self._update, shard), self.ppo_device, pool) for shard in self.shards]
        self.num_actors = self.layout.num_envs
        self.batch_size = self.batch_size_envs = self.horizon_length * self.num_actors
        self.num_minibatches = settings.num_minibatches
        self.minibatch_size = self.batch_size // self.layout.num_groups // self.num_minibatches
        self.is_tensor_obses = True
        self.obs = None  # a dict with obs (num_envs, obs_max) once the environment is reset
        self.group_stats: dict[str, Tensor] = {}
        self.stop = False
        self._alive: list[bool] = [True] * num_groups
        self._dead = torch.zeros(num_groups, dtype=torch.bool, device=self.ppo_device)
        self.algo_observer.after_init(self)

    def train(self) -> tuple[float, int]:
        """Train until ``max_epochs``, ``max_frames`` or ``stop``; goes on from a restored state."""
        if self.obs is None:
            self.obs = self.env_reset()
        self.stop, total_time = False, 0.0
        while not self.stop and not self._complete():
            began = time.perf_counter()
            self.update_epoch()
            self.train_epoch()
            self.frame += self.batch_size
            total_time += time.perf_counter() - began
            self.algo_observer.after_print_stats(self.frame, self.epoch_num, total_time)
        return self.last_mean_rewards, self.epoch_num

    def _complete(self) -> bool:
        epochs, frames = self.max_epochs != -1, self.max_frames != -1
        return (epochs and self.epoch_num >= self.max_epochs) or (frames and self.frame >= self.max_frames)

    def train_epoch(self) -> None:
        """Play one rollout and learn from it."""
        self.vec_env.set_train_info(self.frame, self)
        self.play_steps()
        self.algo_observer.after_steps()
        self._refresh_alive()
        with span("update"):
            self._look()
            active = [(shard, update) for shard, update in zip(self.shards, self._updates) if shard.active]
            run = map if self._threads is None else self._threads.map
            results = list(run(lambda each: each[1](), active))
            for (shard, _), stats in zip(active, results):
                for name, values in stats.items():
                    empty = torch.full((self.layout.num_groups,), float("nan"), device=self.ppo_device)
                    self.group_stats.setdefault(name, empty)[shard.groups] = values.to(torch.float32)
            for values in self.group_stats.values():
                values.masked_fill_(self._dead, float("nan"))

    @torch.no_grad()
    def play_steps(self) -> None:
        """Step the environment ``horizon_length`` times; the shards remember what happened."""
        with span("policy"):
            draw_noise(self.shards, (self.epoch_num - 1) * self.horizon_length, self._noise)
            self._t.zero_()
        wants_infos = type(self.algo_observer).process_infos is not AlgoObserver.process_infos
        for t in range(self.horizon_length):
            self._refresh_alive()
            with span("policy"):
                self._look()
                actions = self._act(t) if self._pool is None else self._act_next()
            obs, rewards, dones, infos = self.vec_env.step(actions)
            self.obs = self.obs_to_tensors(obs)
            time_outs = infos.get("time_outs", torch.zeros_like(dones))
            self._met.put(t, *(self.layout.split(x) for x in (rewards, dones, time_outs)))
            if wants_infos:  # only then: to list the finished environments is to wait for the device
                self.algo_observer.process_infos(infos, dones.nonzero(as_tuple=False))

    def _look(self) -> None:
        """Put the present observations ``(G, n, obs_max)`` where acting and updating look for them."""
        obs = self.layout.split(self.obs["obs"])
        if self._pool is None:
            self._seen = obs
        else:
            self._seen.copy_(obs)

    def _act(self, t: Step) -> Tensor:
        """Sample step t's actions ``(num_envs, act_max)``, as the environment takes them."""
        actions = self._seen.new_zeros(*self._seen.shape[:2], self.actions_num)
        for shard in self.shards:
            if shard.active or self._pool is not None:  # a graph goes on as it was captured
                shard.act(t, self._seen, self._noise[shard.noise_key], actions)
        return torch.as_tensor(self.preprocess_actions(self.layout.merge(actions)))

    def _act_and_count(self) -> Tensor:
        actions = self._act(self._t)
        self._t.add_(1)
        return actions

    def _update(self, shard: Shard) -> dict[str, Tensor]:
        if not hasattr(self._memory, "tensor"):
            size = max(each.learner.workspace_size() for each in self.shards)
            self._memory.tensor = torch.empty(size, device=self.ppo_device)
        return shard.update(self._seen, self.epoch_num, self._memory.tensor)

    def _refresh_alive(self) -> None:
        alive = list(self.vec_env.alive)
        if alive != self._alive:
            self._alive = alive
            self._dead = torch.tensor(alive, device=self.ppo_device).logical_not_()
            for shard in self.shards:
                shard.set_alive(alive[shard.groups])

    def deterministic_policy(self, layout: GroupLayout) -> Callable[[Tensor], Tensor]:
        """The policies as they are, without noise.

        Args:
            layout: of the observations: the same groups, any number of environments each.

        Returns:
            A function from observations ``(num_envs, obs_max)`` to actions ``(num_envs, act_max)`` as the environment
            takes them; failed groups do nothing.
        """

        @torch.no_grad()
        def policy(obs: Tensor) -> Tensor:
            self._refresh_alive()
            split = layout.split(obs)
            actions = split.new_zeros(*split.shape[:2], self.actions_num)
            for shard in self.shards:
                if shard.active:
                    shard.act_deterministically(split, actions)
            return torch.as_tensor(self.preprocess_actions(layout.merge(actions)))

        return policy

    def export(self, group: int) -> dict[str, Any]:
        """One group's policy as a checkpoint for rl_games' own player (``torch.save`` it)."""
        shard = next(shard for shard in self.shards if group < shard.groups.stop)
        model = shard.learner.export(group - shard.groups.start)
        frame = self.epoch_num * self.batch_size // self.layout.num_groups
        return {"model": model, "epoch": self.epoch_num, "frame": frame}

    def get_weights(self) -> dict[str, Any]:
        return {"learners": [shard.learner.state_dict() for shard in self.shards]}

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        states = weights["learners"]
        if len(states) != len(self.shards):
            raise ValueError(
                f"the checkpoint holds {len(states)} learners and this run has {len(self.shards)}: go on with the"
                " same candidates and seeds, on the same kind of device (CPU or CUDA)"
            )
        for shard, state in zip(self.shards, states):
            shard.learner.load_state_dict(state)

    def get_full_state_weights(self) -> dict[str, Any]:
        """Everything that going on as if uninterrupted needs, the environment's state included, on the CPU."""
        return {
            **self.get_weights(),
            "epoch": self.epoch_num,
            "frame": self.frame,
            "last_mean_rewards": self.last_mean_rewards,
            "obs": None if self.obs is None else self.obs["obs"].cpu().clone(),
            "group_stats": {name: values.cpu().clone() for name, values in self.group_stats.items()},
            "env_state": self.vec_env.get_env_state(),
        }

    def set_full_state_weights(self, weights: Mapping[str, Any], set_epoch: bool = True) -> None:
        """Take up the state that ``get_full_state_weights`` returned.

        Raises:
            ValueError: it is of a run with other groups.
        """
        self.set_weights(weights)
        if set_epoch:
            self.epoch_num, self.frame = weights["epoch"], weights["frame"]
        self.last_mean_rewards = weights["last_mean_rewards"]
        self.obs = None if weights["obs"] is None else {"obs": weights["obs"].to(self.ppo_device)}
        self.group_stats = {name: values.to(self.ppo_device) for name, values in weights["group_stats"].items()}
        self.vec_env.set_env_state(weights["env_state"])
        self._refresh_alive()


def _prepare_worker() -> None:
    """Set up a thread that updates learners."""
    torch.set_num_threads(1)
    # saturated units and idle weights breed numbers below 1e-38, on which a CPU multiplies a hundred times slower
    torch.set_flush_denormal(True)


def _init_stock(agent: GroupedA2CAgent, base_name: str, params: dict[str, Any]) -> None:
    """Run rl_games' own constructor: config keys, environment, observer, spaces, counters.

    Its lines on stdout are swallowed. Its folders and TensorBoard file come to be only where ``train_dir`` is given.
    """
    config = params["config"]
    env = config.get("vec_env")
    own = {"num_actors": config["num_actors"] if env is None else env.num_envs}
    # rl_games would divide the batch of all groups by the size meant for one; the learners count their own
    own["minibatch_size"] = own["num_actors"] * config["horizon_length"]
    if env is not None:
        own["env_info"] = env.get_env_info()
    with tempfile.TemporaryDirectory() as scratch, contextlib.redirect_stdout(io.StringIO()):
        train_dir = config.get("train_dir", scratch)
        ContinuousA2CBase.__init__(agent, base_name, {**params, "config": {**config, **own, "train_dir": train_dir}})
        if train_dir == scratch:
            agent.writer.close()
            agent.writer = SummaryWriter(logdir=scratch, write_to_disk=False)
    agent.model = agent.optimizer = None  # what rl_games keeps there, the learners keep per group
    agent.is_rnn = False
