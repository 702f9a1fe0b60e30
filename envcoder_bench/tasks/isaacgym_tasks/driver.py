"""Drive a task by its own methods: act and simulate, compute observations and rewards, reset some environments.

Tasks call ``reset_idx`` at different places: before or after observing, or with the next action. A driver disables it
in the other methods, and calls it when the environment asks for a reset.

All of the task's code runs without gradients, as in rollouts of rl_games and rsl_rl: rewards of TorchScript can require
one, and the graph of a reward buffer that is written in place would grow with each step.
"""

import contextlib
import inspect
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.tasks.isaacgym_tasks.gym_proxy import GymProxy
from envcoder_bench.tasks.isaacgym_tasks.reward_terms import RewardTerms
from envcoder_bench.torch_utils import quat_rotate_inverse

_BASE = ("base_quat", "base_lin_vel", "base_ang_vel", "projected_gravity")


class Driver:
    """Driver of a VecTask.

    Args:
        task: the task, with its methods wrapped by ``Draws``.
        gym: its gym.

    Attributes:
        num_actions, clip_actions, clip_observations, max_episode_length: as in the task.
        dt: time of a control step, s.
        terms: notes the terms of its reward.
        advances: whether a reset has simulated, which advances all environments.
        timed_out: ``(num_envs,)`` bool, environments whose episode the task ended as a time-out in the last step,
            such as robots that have reached the end of their course.
    """

    clock = "progress_buf"

    def __init__(self, task: Any, gym: GymProxy) -> None:
        self.task, self.gym = task, gym
        self.num_envs, self.repeats = int(task.num_envs), 1
        self.num_actions = int(task.num_actions)
        self.device = torch.device(task.device)
        self._reset_idx, self.advances = task.reset_idx, False
        parameters = list(inspect.signature(self._reset_idx).parameters.values())
        # hands also take environments that need a new goal, which get it with their next action
        self._more = sum(p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters[1:])
        self.timed_out = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)
        if not hasattr(task, "actions"):  # some tasks create it with the first action, but observe it before
            task.actions = torch.zeros(self.num_envs, self.num_actions, device=self.device)
        self.terms = RewardTerms(task)
        self._read_numbers()

    def _read_numbers(self) -> None:
        task = self.task
        self.clip_actions = float(getattr(task, "clip_actions", math.inf))
        self.clip_observations = float(getattr(task, "clip_obs", math.inf))
        self.repeats = int(getattr(task, "control_freq_inv", 1))
        self.dt = float(task.sim_params.dt) * self.repeats
        length = getattr(task, "max_episode_length", None)
        self.max_episode_length = int(task.cfg["env"]["episodeLength"] if length is None else length)

    def place(self, lanes: Tensor) -> None:
        """Slot environments as in a group alone, if places depend on the number of environments."""

    @torch.no_grad()
    def act(self, actions: Tensor) -> None:
        """Apply actions ``(num_envs, num_actions)`` and simulate one control step."""
        with self._without("reset_idx"):
            self.task.pre_physics_step(actions)
            for _ in range(self.repeats):
                self.gym.simulate(self.task.sim)
            if self.device.type == "cpu":
                self.gym.fetch_results(self.task.sim, True)

    @torch.no_grad()
    def judge(self, progress: Tensor) -> Tensor:
        """Compute observations and rewards; return terminations without time-outs, ``(num_envs,)`` bool.

        Args:
            progress: steps of each episode before this one. The task's counter stays below its time-out, because
                time-outs belong to the environment.
        """
        # below its time-out the task ends an episode for its own reasons alone
        getattr(self.task, self.clock).copy_(progress.clamp(max=self.max_episode_length - 3))
        self.task.reset_buf = torch.zeros_like(self.task.reset_buf)
        with self._without("reset_idx"), self.terms.noted():
            self._judge()
        # a time-out that the task notes is a truncation
        ends = self.task.reset_buf != 0
        noted = self._time_outs()
        if noted is not None:
            torch.logical_and(ends, noted, out=self.timed_out)
            ends = ends & ~self.timed_out
        getattr(self.task, self.clock).copy_(progress + 1)
        self.task.reset_buf = torch.zeros_like(self.task.reset_buf)
        return ends

    def _judge(self) -> None:
        self.task.post_physics_step()

    def _time_outs(self) -> Tensor | None:
        """Return the tensor in which a task notes which episodes have timed out; None if it has none."""
        noted = getattr(self.task, "time_out_buf", None)
        return noted if isinstance(noted, Tensor) and noted.shape == self.timed_out.shape else None

    @torch.no_grad()
    def reset(self, env_ids: Tensor) -> None:
        """Begin episodes as the task does."""
        noted = self._time_outs()
        if noted is not None:  # curriculums read it; the environment's own time-outs are not in it
            late = getattr(self.task, self.clock)[env_ids] >= self.max_episode_length - 1
            noted[env_ids] = (noted[env_ids].bool() | late).to(noted.dtype)
        steps = self.gym.steps
        moved = self._reset_idx(env_ids, *[env_ids[:0]] * self._more)
        self.advances = self.advances or self.gym.steps > steps
        if isinstance(moved, Tensor) and moved.dtype == torch.int32:  # actors whose states the caller must set
            roots = self.gym.acquire_actor_root_state_tensor(self.task.sim)
            self.gym.set_actor_root_state_tensor_indexed(self.task.sim, roots, moved, len(moved))
        getattr(self.task, self.clock)[env_ids] = 0
        self.task.reset_buf[env_ids] = 0
        noted = self._time_outs()  # the reset may have replaced it
        if noted is not None:  # some tasks only ever set it
            noted[env_ids] = 0

    @torch.no_grad()
    def first(self) -> None:
        """Begin the first episodes; tasks that can observe only after a step take one."""
        everyone = torch.arange(self.num_envs, device=self.device)
        self.reset(everyone)
        try:
            self.observe()
        except (AttributeError, RuntimeError, IndexError, TypeError):
            self.settle()

    @torch.no_grad()
    def settle(self) -> None:
        """Take a step, in which tasks make tensors, and begin the first episodes again."""
        everyone = torch.arange(self.num_envs, device=self.device)
        self.act(torch.zeros(self.num_envs, self.num_actions, device=self.device))
        self.judge(torch.zeros_like(everyone))
        self.reset(everyone)
        self.observe()

    @torch.no_grad()
    def observe(self) -> None:
        """Compute the observations of the present state."""
        self.refresh()
        self._refresh_base()
        observe = getattr(self.task, "compute_observations", None) or getattr(self.task, "_compute_observations", None)
        if observe is not None:
            observe()

    def _refresh_base(self) -> None:
        """Compute a legged task's tensors of its base, which its reset leaves at those of the last episode."""
        task = self.task
        if not all(hasattr(task, name) for name in ("root_states", "gravity_vec", *_BASE)):
            return
        roots = task.root_states
        turn = roots[:, 3:7]
        vectors = (roots[:, 7:10], roots[:, 10:13], task.gravity_vec)
        for name, x in zip(_BASE, (turn, *(quat_rotate_inverse(turn, vector) for vector in vectors))):
            getattr(task, name).copy_(x)

    def refresh(self) -> None:
        """Refresh all acquired tensors."""
        for name in self.gym.acquired:
            getattr(self.gym, name)(self.task.sim)

    @contextlib.contextmanager
    def _without(self, *names: str) -> Iterator[None]:
        """Replace methods by ones that do nothing inside the block."""

        def nothing(*args: Any, **kwargs: Any) -> Tensor:
            return torch.zeros(0, dtype=torch.int32, device=self.device)

        attributes = vars(self.task)
        before = {name: attributes[name] for name in names if name in attributes}
        attributes.update(dict.fromkeys(names, nothing))
        try:
            yield
        finally:
            for name in names:
                del attributes[name]
            attributes.update(before)


class StepDriver(Driver):
    """Driver of a task whose ``step`` does more than VecTask's, such as a controller between the simulation steps.

    The task's ``step`` is called as it is. It computes rewards, too, so that it is called by ``judge``.
    """

    def _read_numbers(self) -> None:
        super()._read_numbers()
        self._actions: Tensor | None = None

    def act(self, actions: Tensor) -> None:
        self._actions = actions

    def _judge(self) -> None:
        if self._actions is not None:
            self.task.step(self._actions)

    def first(self) -> None:
        everyone = torch.arange(self.num_envs, device=self.device)
        self.reset(everyone)  # some resets simulate
        before = self.gym.get_sim_time(self.task.sim)
        self.act(torch.zeros(self.num_envs, self.num_actions, device=self.device))
        self.judge(torch.zeros_like(everyone))
        self.dt = float(self.gym.get_sim_time(self.task.sim) - before)  # the number of simulation steps is the task's
        super().first()


# what VecTask's step calls; a step that calls other methods of its class is the task's own
_USUAL = {"pre_physics_step", "post_physics_step", "render", "get_state"}


def _has_own_step(task: Any) -> bool:
    step = getattr(type(task), "step", None)
    names = getattr(getattr(step, "__code__", None), "co_names", ())
    return any(name not in _USUAL and inspect.isfunction(getattr(type(task), name, None)) for name in names)


class LeggedDriver(StepDriver):
    """Driver of a LeggedRobot, whose ``step`` applies torques, simulates several times, and computes rewards."""

    clock = "episode_length_buf"

    def _read_numbers(self) -> None:
        task = self.task
        self._actions = None
        numbers = task.cfg.normalization
        self.clip_actions = float(getattr(numbers, "clip_actions", math.inf))
        self.clip_observations = float(getattr(numbers, "clip_observations", math.inf))
        self.dt, self.max_episode_length = float(task.dt), int(task.max_episode_length)
        if not getattr(task, "custom_origins", True):
            task.env_origins.zero_()  # the grid on a plane depends on the number of environments

    def place(self, lanes: Tensor) -> None:
        """Slot environments on the terrain as in a group alone."""
        task = self.task
        if getattr(task, "custom_origins", False) and hasattr(task, "terrain_types"):
            share = (int(lanes.max()) + 1) / task.cfg.terrain.num_cols
            task.terrain_types.copy_(torch.div(lanes, share, rounding_mode="floor"))
            origins = task.terrain_origins[task.terrain_levels, task.terrain_types]
            task.root_states[:, :3] += origins - task.env_origins  # the curriculum measures distances from the origins
            task.env_origins.copy_(origins)

    def first(self) -> None:
        Driver.first(self)  # the task knows the time of its control step

    @torch.no_grad()
    def observe(self) -> None:
        self.refresh()
        self._refresh_base()
        scan = getattr(self.task, "_get_heights", None)  # forks without terrain keep the setting, not the method
        if scan is not None and not {*inspect.signature(scan).parameters} <= {"env_ids"}:
            scan = None  # heights at places that the task chooses, as human2humanoid's motions
        if scan is not None and getattr(self.task.cfg.terrain, "measure_heights", False):
            self.task.measured_heights = scan()
        self.task.compute_observations()


def make_driver(task: Any, gym: GymProxy) -> Driver:
    """Return the driver of a task. Raises ValueError if it is neither a VecTask nor a LeggedRobot."""
    legged = all(hasattr(task, name) for name in ("_compute_torques", "post_physics_step", "reset_idx", "step"))
    configured = hasattr(getattr(task, "cfg", None), "normalization")
    if (
        legged and configured and hasattr(task, LeggedDriver.clock)
    ):  # also forks that divide step, and have a pre_physics_step
        return LeggedDriver(task, gym)
    if all(hasattr(task, name) for name in ("pre_physics_step", "post_physics_step", "reset_idx")):
        return StepDriver(task, gym) if _has_own_step(task) else Driver(task, gym)
    missing = [name for name in ("pre_physics_step", "post_physics_step", "reset_idx") if not hasattr(task, name)]
    raise ValueError(f"{type(task).__name__} lacks {', '.join(missing)}: it is neither a VecTask nor a LeggedRobot")
