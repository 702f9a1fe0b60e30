"""Drive a task's own methods piece by piece: action and physics, reward and observations, reset of some environments.

A task resets environments wherever its author put that: before observing, after it, or with the next action. Here
``reset_idx`` does nothing while the other pieces run, and is called where the environment wants it.
"""

from __future__ import annotations

import contextlib
import inspect
from typing import Any, Iterator

import torch
from torch import Tensor

from envcoder_bench.tasks.isaacgym_tasks.gym_proxy import GymProxy


class Driver:
    """The pieces of a VecTask.

    Args:
        task: the task, whose methods draw from its groups by now.
        gym: its gym.

    Attributes:
        num_actions, clip_actions, clip_observations, dt, max_episode_length: as the task has them; ``dt`` is one
            control step.
    """

    clock = "progress_buf"

    def __init__(self, task: Any, gym: GymProxy) -> None:
        self.task, self.gym = task, gym
        self.num_envs = int(task.num_envs)
        self.num_actions = int(task.num_actions)
        self.device = torch.device(task.device)
        self._reset_idx = task.reset_idx
        if not hasattr(task, "actions"):  # some tasks make it with the first action, and observe it
            task.actions = torch.zeros(self.num_envs, self.num_actions, device=self.device)
        self._read_numbers()

    def _read_numbers(self) -> None:
        task = self.task
        self.clip_actions, self.clip_observations = float(task.clip_actions), float(task.clip_obs)
        self.repeats = int(getattr(task, "control_freq_inv", 1))
        self.dt = float(task.sim_params.dt) * self.repeats
        length = getattr(task, "max_episode_length", None)
        self.max_episode_length = int(task.cfg["env"]["episodeLength"] if length is None else length)

    def act(self, actions: Tensor) -> None:
        """Apply actions ``(num_envs, num_actions)`` and simulate one control step."""
        with self._without("reset_idx"):
            self.task.pre_physics_step(actions)
            for _ in range(self.repeats):
                self.gym.simulate(self.task.sim)
            if self.device.type == "cpu":
                self.gym.fetch_results(self.task.sim, True)

    def judge(self, progress: Tensor) -> Tensor:
        """Compute observations, rewards and ends; returns ``(num_envs,)`` bool: the ends that are no time-outs.

        Args:
            progress: steps of each episode before this one. The task's clock stops short of its time-out, which is the
                environment's business.
        """
        getattr(self.task, self.clock).copy_(progress.clamp(max=self.max_episode_length - 3))
        self.task.reset_buf = torch.zeros_like(self.task.reset_buf)
        with self._without("reset_idx"):
            self._judge()
        ends = self.task.reset_buf != 0
        timed_out = getattr(self.task, "time_out_buf", None)
        if isinstance(timed_out, Tensor) and timed_out.shape == ends.shape:
            ends = ends & ~timed_out.bool()
        getattr(self.task, self.clock).copy_(progress + 1)
        self.task.reset_buf = torch.zeros_like(self.task.reset_buf)
        return ends

    def _judge(self) -> None:
        self.task.post_physics_step()

    def reset(self, env_ids: Tensor) -> None:
        """Begin episodes as the task does."""
        parameters = list(inspect.signature(self._reset_idx).parameters.values())
        none = env_ids[:0]
        # hands take the environments that want a new goal, too: those get it with their next action
        more = [none for p in parameters[1:] if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
        moved = self._reset_idx(env_ids, *more)
        if isinstance(moved, Tensor) and moved.dtype == torch.int32:  # actors that the caller is to write
            roots = self.gym.acquire_actor_root_state_tensor(self.task.sim)
            self.gym.set_actor_root_state_tensor_indexed(self.task.sim, roots, moved, len(moved))
        getattr(self.task, self.clock)[env_ids] = 0
        self.task.reset_buf[env_ids] = 0

    def observe(self) -> None:
        """Compute the observations of the state as it is now."""
        self.refresh()
        observe = getattr(self.task, "compute_observations", None) or getattr(self.task, "_compute_observations", None)
        if observe is not None:
            observe()

    def refresh(self) -> None:
        """Read everything that was acquired anew."""
        for name in self.gym.acquired:
            getattr(self.gym, name)(self.task.sim)

    @contextlib.contextmanager
    def _without(self, *names: str) -> Iterator[None]:
        """Let methods do nothing inside the block."""

        def nothing(*args: Any, **kwargs: Any) -> Tensor:
            return torch.zeros(0, dtype=torch.int32, device=self.device)

        own = vars(self.task)
        before = {name: own[name] for name in names if name in own}
        own.update(dict.fromkeys(names, nothing))
        try:
            yield
        finally:
            for name in names:
                del own[name]
            own.update(before)


class LeggedDriver(Driver):
    """The pieces of a LeggedRobot, whose ``step`` applies torques and simulates several times."""

    clock = "episode_length_buf"

    def _read_numbers(self) -> None:
        task = self.task
        numbers = task.cfg.normalization
        self.clip_actions, self.clip_observations = float(numbers.clip_actions), float(numbers.clip_observations)
        self.dt, self.max_episode_length = float(task.dt), int(task.max_episode_length)

    def act(self, actions: Tensor) -> None:
        with self._without("reset_idx", "post_physics_step"):
            self.task.step(actions)

    def observe(self) -> None:
        self.refresh()
        task = self.task
        if all(hasattr(task, name) for name in ("base_quat", "base_lin_vel", "base_ang_vel", "projected_gravity")):
            # legged_gym leaves those of the last episode in the first observation of the next one
            roots = task.root_states
            task.base_quat[:] = roots[:, 3:7]
            for name, vectors in (
                ("base_lin_vel", roots[:, 7:10]),
                ("base_ang_vel", roots[:, 10:13]),
                ("projected_gravity", task.gravity_vec),
            ):
                getattr(task, name)[:] = _into_frame(task.base_quat, vectors)
        task.compute_observations()


def _into_frame(quat: Tensor, vector: Tensor) -> Tensor:
    """Vectors of the world in the frame of a quaternion xyzw, ``(n, 3)``."""
    from envcoder_bench.torch_utils import quat_rotate_inverse

    return quat_rotate_inverse(quat, vector)


def make_driver(task: Any, gym: GymProxy) -> Driver:
    """The driver of a task. Raises ValueError where it is neither a VecTask nor a LeggedRobot."""
    if all(hasattr(task, name) for name in ("pre_physics_step", "post_physics_step", "reset_idx")):
        return Driver(task, gym)
    if all(hasattr(task, name) for name in ("_compute_torques", "post_physics_step", "reset_idx", "step")):
        return LeggedDriver(task, gym)
    missing = [name for name in ("pre_physics_step", "post_physics_step", "reset_idx") if not hasattr(task, name)]
    raise ValueError(f"{type(task).__name__} lacks {', '.join(missing)}: it is neither a VecTask nor a LeggedRobot")
