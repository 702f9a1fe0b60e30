"""A vectorized environment with one simulation and a group of environments per candidate."""

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from envcoder_bench.core.groups import GroupLayout, common, join_states
from envcoder_bench.core.profiling import span
from envcoder_bench.env.base import EnvStep
from envcoder_bench.env.cuda_graphs import TaskFitness
from envcoder_bench.env.dispatch import Dispatcher
from envcoder_bench.env.episode_stats import EpisodeStats, StepEnd
from envcoder_bench.shaping.contract import Fault, Shaping
from envcoder_bench.shaping.faults import of_patch
from envcoder_bench.shaping.kinds import VALUE
from envcoder_bench.shaping.state import STATE_NAMES
from envcoder_bench.tasks.base import EnvGroups, Task


class GroupedVecTask:
    """Environments of one task, with a shaping per group.

    Observations ``(num_envs, max(obs_dims))`` and actions ``(num_envs, max(action_dims))`` are padded with zeros to
    the widest group, as are the critics' observations. An episode ends by the group's terminal function, the task's
    time-out, or unstable physics.

    Args:
        task: the task, with ``layout.num_envs`` environments.
        layout: the groups.
        shapings: one checked Shaping per group; groups must not share modules.
        seeds: one seed per group; groups with equal seeds get the same random numbers.

    Attributes:
        critic_obs: ``(num_envs, max(critic_dims))``, the critics' observations after the last reset or step; None if no
            group has them.
    """

    def __init__(self, task: Task, layout: GroupLayout, shapings: Sequence[Shaping], seeds: Sequence[int]) -> None:
        self.task, self.layout = task, layout
        self.num_envs, self.device = layout.num_envs, task.device
        self.group_seeds = list(seeds)
        self.obs_dims = [shaping.obs_dim for shaping in shapings]
        self.action_dims = [shaping.action_dim for shaping in shapings]
        self.critic_dims = [shaping.critic_dim for shaping in shapings]

        # padded to the widest group; masks keep the padding at zero
        self.actions = torch.zeros(self.num_envs, max(self.action_dims), device=self.device)
        self.progress_buf = torch.zeros(self.num_envs, dtype=torch.int64, device=self.device)
        self._action_mask = torch.zeros_like(self.actions)
        self._obs_mask = torch.zeros(self.num_envs, max(self.obs_dims), device=self.device)
        for group, (obs_dim, action_dim) in enumerate(zip(self.obs_dims, self.action_dims)):
            self._action_mask[layout.slice(group), :action_dim] = 1.0
            self._obs_mask[layout.slice(group), :obs_dim] = 1.0
        # observations for critics
        self.critic_obs: Tensor | None = None
        if any(self.critic_dims):
            self.critic_obs = torch.zeros(self.num_envs, max(self.critic_dims), device=self.device)
        # every group's slice of the state, as views
        self.state = {**task.state, "progress_buf": self.progress_buf}
        self.views = layout.views(self.state)
        for group, width in enumerate(self.action_dims):
            self.views[group]["actions"] = self.actions[layout.slice(group), :width]
        self.dispatch = Dispatcher(layout, shapings, self.views, task.constants, task, self.group_seeds, self.device)
        self.stats = EpisodeStats(layout, self.device)
        self.task_fitness = TaskFitness(task, {**self.state, "actions": self.actions}, self.views)
        self._attach(shapings)
        # torques or position targets, by group
        effort = torch.tensor([shaping.effort for shaping in shapings], device=self.device)
        task.set_drive_mode(layout.per_env(effort))
        self.step_count = 0

    def _attach(self, shapings: Sequence[Shaping]) -> None:
        """Tell the task what the groups are."""
        layout = self.layout

        def per_env(values: Sequence[Any]) -> Tensor:
            return layout.per_env(torch.tensor(values, device=self.device))

        self.task.attach(
            EnvGroups(
                size=layout.envs_per_group,
                seeds=per_env(self.group_seeds),
                lanes=self.lanes().to(self.device),
                actions=self.actions,
                commands=per_env(["command" in shaping.stages for shaping in shapings]),
                initial_states=per_env(["initial_state" in shaping.stages for shaping in shapings]),
                goals=per_env(["goal" in shaping.stages for shaping in shapings]),
                keys=keys_read(shapings),
            )
        )

    def lanes(self) -> Tensor:
        """Return the numbers ``(num_envs,)`` that the task's draws depend on."""
        return torch.arange(self.layout.envs_per_group).repeat(self.layout.num_groups)

    # one control step

    def reset(self) -> Tensor:
        """Begin an episode in every environment and return the first observations ``(num_envs, max(obs_dims))``."""
        self.begin_episodes(torch.ones(self.num_envs, dtype=torch.bool, device=self.device))
        self._observe_for_critics()
        return self.observe()

    def step(self, actions: Tensor, final_obs: bool = False) -> EnvStep:
        """Advance one control step; environments whose episode ends are reset.

        Args:
            actions: ``(num_envs, max(action_dims))``; clipped to the task's ``clip_actions``.
            final_obs: whether to observe the last state of episodes that end, too. This calls their groups' observation
                functions once more. Where the physics became unstable, that state is the default one.
        """
        self.advance(actions)
        reward, terminated, truncated, done = self._end_step()
        self.step_count += 1
        last = None
        if final_obs:
            self.task.finish_step()
            last = self.observe(done)
        self.begin_episodes(done)
        self._observe_for_critics()
        obs = self.observe()
        if last is not None:
            last = torch.where(done.unsqueeze(1), last, obs)
        return EnvStep(obs, reward, terminated, truncated, last)

    def _end_step(self) -> StepEnd:
        """Compute rewards and which episodes end, and count them."""
        reward = self.dispatch.reward(self.step_count)
        terminal, unstable = self.dispatch.terminal(self.step_count), self.task.unstable
        return self.stats.end_step(
            reward, terminal, unstable, self.progress_buf, self.task.timed_out, self.full_episode
        )

    # the parts of a step, for training here and for evaluation

    def cut_short(self, ended: Tensor) -> Tensor:
        """Return ``ended`` ``(num_envs,)``, and True where the task itself cuts the episode short."""
        return ended if self.task.timed_out is None else ended | self.task.timed_out

    @property
    def full_episode(self) -> int:
        """Number of control steps until the time-out; as in IsaacGymEnvs, one less than ``max_episode_length``."""
        return self.task.max_episode_length - 1

    def advance(self, actions: Tensor, mask: Tensor | None = None) -> None:
        """Apply actions and simulate; reward and terminal are then computed from the new state.

        ``mask`` here and in ``observe`` is the dispatcher's: groups with no True are not called on the CPU.
        """
        limit, self.task.step_count = self.task.clip_actions, self.step_count
        actions = actions.clamp(-limit, limit)
        if self.task.randomizes:
            actions = self._randomized(self.task.randomize_actions, actions, self._action_mask).clamp(-limit, limit)
        torch.mul(actions, self._action_mask, out=self.actions)
        command = self.dispatch.command(self.actions, self.step_count, mask)
        with span("physics"):
            self.task.step(command)
        for group, error in self.task.faults.items():
            self.dispatch.fail(group, of_patch(error, self.dispatch.shapings[group].file, self.step_count))
        self.progress_buf += 1

    def observe(self, mask: Tensor | None = None) -> Tensor:
        """Return observations ``(num_envs, max(obs_dims))``, clipped to the task's ``clip_observations``."""
        limit = self.task.clip_observations
        obs = self.dispatch.observation(self.step_count, mask)
        if self.task.randomizes:
            self.task.step_count = self.step_count
            obs = self._randomized(self.task.randomize_observations, obs, self._obs_mask)
        return obs.clamp(-limit, limit)

    def _observe_for_critics(self) -> None:
        """Fill ``critic_obs``, clipped as observations are; as in IsaacGymEnvs, they are not randomized."""
        if self.critic_obs is not None:
            limit = self.task.clip_observations
            obs = self.dispatch.run("critic_observation", self.step_count)[VALUE]
            torch.clamp(obs, -limit, limit, out=self.critic_obs)

    def _randomized(self, function: Callable[[Tensor, slice], Tensor], x: Tensor, mask: Tensor) -> Tensor:
        """Return actions or observations as the task randomizes them, with zeros where ``mask`` is 0.

        On a CPU each group is one call of its own width: torch may round a number differently in a larger tensor.
        """
        if self.device.type != "cpu":
            return function(x, slice(0, self.num_envs)) * mask
        x = x.clone()
        for group in range(self.layout.num_groups):
            rows = self.layout.slice(group)
            width = int(mask[rows.start].sum())
            x[rows, :width] = function(x[rows, :width], rows)
        return x

    def begin_all(self, step_count: int) -> Tensor:
        """Restart every environment with the random numbers of ``step_count`` and return the observations."""
        self.task.step_count = self.step_count = step_count
        self.task.restart()
        return self.reset()

    def begin_episodes(self, mask: Tensor) -> None:
        """Begin episodes where ``mask`` ``(num_envs,)`` is True, and set a new goal where the task requests one."""
        self.task.step_count = self.step_count
        may_sync = self.device.type == "cpu"  # CUDA resets by mask, without a sync
        if not may_sync or bool(mask.any()):
            self.progress_buf.masked_fill_(mask, 0)
            self.actions.masked_fill_(mask.unsqueeze(1), 0.0)
            self.task.prepare_reset(mask)
            if self.task.first_progress is not None:
                self.progress_buf += self.task.first_progress * mask
            self.task.reset(mask, self.starts(mask, self.dispatch.initial_state(mask, self.step_count)), {})
        if self.task.new_goal is not None:
            mask = mask | self.task.new_goal
        if not may_sync or bool(mask.any()):  # a goal may depend on the new state
            self.task.reset(mask, {}, self.starts(mask, self.dispatch.goal(mask, self.step_count)))
        self.task.settle()

    def starts(self, mask: Tensor, drawn: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the initial states or goals for ``mask``, from those that the groups' functions have drawn."""
        return drawn

    def take_contact_overflows(self) -> Tensor:
        """Return the sums of the task's ``contact_overflows`` since the last call, ``(num_groups,)``."""
        overflows = self.layout.split(self.task.contact_overflows).sum(dim=1)
        self.task.contact_overflows.zero_()
        return overflows

    # faults, and the state for checkpoints

    @property
    def alive(self) -> list[bool]:
        """Whether each group's candidate has not failed."""
        return self.dispatch.alive

    @property
    def failures(self) -> dict[int, Fault]:
        """The faults so far, by group."""
        return self.dispatch.failures

    def get_state(self) -> dict[str, Any]:
        """Return the state that ``set_state`` restores."""
        return {
            "task": self.task.get_state(),
            "dispatch": self.dispatch.get_state(),
            "stats": self.stats.get_state(),
            "actions": self.actions.cpu().clone(),
            "progress_buf": self.progress_buf.cpu().clone(),
            "step_count": self.step_count,
            **({} if self.critic_obs is None else {"critic_obs": self.critic_obs.cpu().clone()}),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore what ``get_state`` or ``join_states`` returned; without the task's state, ``reset`` must follow."""
        self.dispatch.set_state(state["dispatch"])
        self.stats.set_state(state["stats"])
        self.step_count = state["step_count"]
        if "task" not in state:
            return
        self.task.set_state(state["task"])
        self.actions.copy_(state["actions"])
        self.progress_buf.copy_(state["progress_buf"])
        if self.critic_obs is not None:
            self.critic_obs.copy_(state["critic_obs"])

    def split_state(self, state: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return a state for each group, as that of an environment of this group alone.

        If the task does not regroup, the states are without episodes, which begin anew.

        Raises:
            ValueError: the task's state is not a set of ``(num_envs, ...)`` tensors.
        """
        stats, dispatch = self.stats.split_state(state["stats"]), self.dispatch.split_state(state["dispatch"])
        common_parts = {"step_count": state["step_count"]}
        parts: list[dict[str, Any]] = [{**common_parts, "stats": x, "dispatch": y} for x, y in zip(stats, dispatch)]
        if not self.task.regroups:
            for part in parts:
                part["stats"]["_return"].zero_()
            return parts
        buffers = {key: state[key] for key in ("actions", "progress_buf", "critic_obs") if key in state}
        for part, rows, task in zip(parts, self.layout.split_state(buffers), self.layout.split_state(state["task"])):
            part.update(rows, task=task)
        for part, width, critic_width in zip(parts, self.action_dims, self.critic_dims):
            part["actions"] = part["actions"][:, :width].clone()
            if self.critic_obs is not None:
                part["critic_obs"] = part["critic_obs"][:, :critic_width].clone()
        return parts

    def join_states(self, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Join the states of the groups, in their order; the reverse of ``split_state``.

        Raises:
            ValueError: they are not at the same iteration.
        """
        state: dict[str, Any] = {
            "dispatch": self.dispatch.join_states([part["dispatch"] for part in parts]),
            "stats": self.stats.join_states([part["stats"] for part in parts]),
            "step_count": common(parts, "step_count"),
        }
        if not self.task.regroups:
            return state
        critics: dict[str, Tensor] = {}
        if self.critic_obs is not None:  # groups without them come from an environment with or without a buffer
            rows = [part.get("critic_obs", part["actions"][:, :0]) for part in parts]
            critics["critic_obs"] = padded(rows, max(self.critic_dims))
        return {
            **state,
            **critics,
            "task": join_states([part["task"] for part in parts]),
            "actions": padded([part["actions"] for part in parts], max(self.action_dims)),
            "progress_buf": torch.cat([part["progress_buf"] for part in parts]),
        }


def keys_read(shapings: Sequence[Shaping]) -> frozenset[str] | None:
    """Return the keys of the state that functions may read; None for all."""
    keys: set[str] = set()
    for shaping in shapings:
        for stage, function in shaping.functions.items():
            program = shaping.programs.get(stage)
            if program is not None:
                keys.update(node.name for node in program.nodes if node.op == "load")
                continue
            for parameter in function.parameters:
                if parameter.name in STATE_NAMES or parameter.kind is Parameter.VAR_KEYWORD:
                    return None
                keys.add(parameter.name)
    return frozenset(keys)


def padded(rows: Sequence[Tensor], width: int) -> Tensor:
    """Concatenate ``(n, own width)`` tensors, with zeros in the columns up to ``width``."""
    return torch.cat([F.pad(x, (0, width - x.shape[1])) for x in rows])
