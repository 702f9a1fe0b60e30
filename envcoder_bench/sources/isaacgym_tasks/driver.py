"""Drive a task by its own methods: act and simulate, compute observations and rewards, reset some environments.

Tasks call ``reset_idx`` at different places: before or after observing, or with the next action. A driver disables it
in the other methods, and calls it when the environment asks for a reset.

All of the task's code runs without gradients, as in rollouts of rl_games and rsl_rl: rewards of TorchScript can require
one, and the graph of a reward buffer that is written in place would grow with each step.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from envcoder_bench.compat.torch_subclass import Marked, marked
from envcoder_bench.sources.isaacgym_tasks.draws import Draws
from envcoder_bench.sources.isaacgym_tasks.gym_proxy import GymProxy
from envcoder_bench.sources.isaacgym_tasks.moments import OBSERVATIONS, Moments
from envcoder_bench.sources.isaacgym_tasks.randomizer import Randomizer
from envcoder_bench.sources.isaacgym_tasks.scene import Scene
from envcoder_bench.sources.isaacgym_tasks.source import Source
from envcoder_bench.sources.isaacgym_tasks.summands import clips_reward, find_summands
from envcoder_bench.sources.isaacgym_tasks.tensors import Unmasked
from envcoder_bench.torch_utils import quat_rotate_inverse

log = logging.getLogger(__name__)
TERMS = "reward_terms"  # an attribute that the task gets: a dict of tensors (num_envs,)
_SUMS = ("episode_sums", "rewards_episode")
_END = "termination"
_COMPARED_EVERY, _COMPARED_FIRST = 64, 3  # steps, of the reward with the sum of its terms
_BASE = ("base_quat", "base_lin_vel", "base_ang_vel", "projected_gravity")


class NoResets(Marked):
    """Zeros that know that they have no element to reset, until they are written.

    VecTasks ask at the beginning of ``post_physics_step``, where the answer would wait for a device's physics.
    """

    unwritten: int

    @classmethod
    def like(cls, x: Tensor) -> NoResets:
        result = marked(cls, torch.zeros_like(x))
        result.unwritten = result._version
        return result

    def nonzero(self, *, as_tuple: bool = False) -> Any:
        """Return the indices of elements that are not 0."""
        if self._version != self.unwritten or self.dim() != 1:
            return self.as_subclass(Tensor).nonzero(as_tuple=as_tuple)
        none = torch.empty(0, dtype=torch.int64, device=self.device)
        return (none,) if as_tuple else none.unsqueeze(1)


class Driver:
    """Driver of a VecTask.

    Args:
        task: the task, with its methods wrapped by ``Draws``.
        gym: its gym.

    Attributes:
        num_actions, clip_actions, clip_observations, max_episode_length: as in the task.
        dt: time of a control step, s.
        terms: notes the terms of its reward.
        moments: of its reward and its observation.
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
        self.moments = Moments(task)
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
        self.task.reset_buf = NoResets.like(self.task.reset_buf)
        self.moments.begin()
        with self._without("reset_idx"), self.terms.noted():
            self._judge()
        self.moments.end()
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
        self._reset_all()
        try:
            self.observe()
        except (AttributeError, RuntimeError, IndexError, TypeError):
            self.settle()

    def _reset_all(self) -> Tensor:
        """Begin the episodes of all environments; return their indices.

        Learners first call the task's own ``reset``, and its ``reset_idx`` can need what that makes, such as the state
        of a controller. It is called where ``reset_idx`` fails without it.
        """
        everyone = torch.arange(self.num_envs, device=self.device)
        try:
            self.reset(everyone)
        except (AttributeError, KeyError, TypeError):
            own_reset = getattr(self.task, "reset", None)
            if own_reset is None or inspect.signature(own_reset).parameters:
                raise
            own_reset()
            self.reset(everyone)
        return everyone

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
        observe = next((getattr(self.task, name) for name in OBSERVATIONS if hasattr(self.task, name)), None)
        if observe is not None:
            observe()

    def _refresh_base(self) -> None:
        """Compute a legged task's tensors of its base, which its reset leaves at those of the last episode."""
        for kept, x in of_base(self.task):
            kept.copy_(x)

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


def of_base(task: Any) -> list[tuple[Tensor, Tensor]]:
    """Return the tensors that a legged task keeps of its base, each with its value for the present root states."""
    if not all(hasattr(task, name) for name in ("root_states", "gravity_vec", *_BASE)):
        return []
    roots = task.root_states
    turn = roots[:, 3:7]
    vectors = (roots[:, 7:10], roots[:, 10:13], task.gravity_vec)
    values = (turn, *(quat_rotate_inverse(turn, vector) for vector in vectors))
    return [(getattr(task, name), x) for name, x in zip(_BASE, values)]


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

    @torch.no_grad()
    def first(self) -> None:
        everyone = self._reset_all()  # some resets simulate
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

    @torch.no_grad()
    def first(self) -> None:
        width = getattr(self.task.cfg.env, "num_actions", self.num_actions)
        if width != self.num_actions:  # the policy may drive only some of the task's joints: a step shows which
            with contextlib.suppress(RuntimeError, IndexError):
                self.task.step(torch.zeros(self.num_envs, width, device=self.device))
                self.num_actions = width
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
    """Return the driver of a task.

    Raises:
        ValueError: it is neither a VecTask nor a LeggedRobot, or has several agents in an environment.
    """
    agents = _agents(task)
    if agents > 1:
        raise ValueError(
            f"{type(task).__name__} has {agents} agents in each environment, and here an environment has one: run its"
            " script by python -m isaacgym_mujoco SCRIPT"
        )
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


def _agents(task: Any) -> int:
    """Return the number of agents in an environment, each of which has a row of observations or an end of its own."""
    obs_buf, reset_buf = getattr(task, "obs_buf", None), getattr(task, "reset_buf", None)
    observed = len(obs_buf) if isinstance(obs_buf, Tensor) else 0
    ended = reset_buf.numel() if isinstance(reset_buf, Tensor) else 0
    return max(observed, ended) // int(task.num_envs)


class RewardTerms:
    """Notes the terms of a task's own reward in its attribute ``reward_terms``, for candidates that weigh them anew.

    Three ways of writing a reward have terms that can be noted without a change of the task's code:

    - legged_gym's: a list ``reward_functions`` with ``reward_names``. A term is what a function returns, without its
      scale; ``termination`` is a function of its own.
    - sums of each term over the episode, as in AnymalTerrain and AllegroKuka: a dict of tensors, to which the reward
      adds its terms. A term is what is added, with its scale.
    - a function that adds them up, as in most tasks of IsaacGymEnvs (``summands``). A term is what is added, with its
      scale.

    Attributes:
        scaled: whether a term includes its scale.
        clipped: whether the sum of the terms, without that of the end, is clipped at 0.
        on_trial: whether terms of a function that cannot be computed are dropped.
        fit: whether such terms have added up to the reward in some environment.
    """

    def __init__(self, task: Any) -> None:
        self._task, self._sums, self._summands = task, "", None
        self._steps, self._told = 0, False
        self._apart: Tensor | None = None  # a tensor of the host
        self.on_trial = self.fit = False
        functions, names = getattr(task, "reward_functions", None), getattr(task, "reward_names", None)
        if isinstance(functions, list) and isinstance(names, list) and functions and len(functions) == len(names):
            self._terms = {str(name): self._zeros() for name in names}
            task.reward_functions = [self._noting(f, str(name)) for f, name in zip(functions, names)]
            if _END in getattr(task, "reward_scales", ()) and _END not in self._terms:
                self._terms[_END] = self._zeros()
                setattr(task, f"_reward_{_END}", self._noting(getattr(task, f"_reward_{_END}"), _END))
        else:
            self._sums = next((name for name in _SUMS if self._is_sums(getattr(task, name, None))), "")
            if not self._sums:
                self._summands = find_summands(task)
            names = getattr(task, self._sums) if self._sums else self._summands.names if self._summands else ()
            self._terms = {key: self._zeros() for key in names}
        self.scaled = bool(self._sums or self._summands)
        self.clipped = self._summands.clipped if self._summands else clips_reward(task)
        if self._terms:
            setattr(task, TERMS, self._terms)

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Note the terms that the task adds up inside the block, of the reward or to the sums of its episodes."""
        if not self._sums:
            with self._summands.noted(self._try) if self._summands else contextlib.nullcontext():
                yield
            if self.on_trial and self._summands and self._task.rew_buf.numel() == self._task.num_envs:
                total, size = sum(self._terms.values()), sum(x.abs() for x in self._terms.values())
                error = (total - self._task.rew_buf.view(-1)).abs()
                self.fit = self.fit or bool((error <= 1e-4 * size + 1e-6).any())
            self._compare()
            return
        before = {key: x.clone() for key, x in getattr(self._task, self._sums).items()}
        for x in getattr(self._task, self._sums).values():
            x.zero_()
        yield
        for key, x in getattr(self._task, self._sums).items():
            if key in before:
                self._note(key, x)
                x.add_(before[key])  # the same sum, bit by bit: 0 + term is the term
        self._compare()

    def _compare(self) -> None:
        """Log once if the task's reward is not the sum of its terms; nothing waits for a CUDA device."""
        self._steps += 1
        if self._told or not self._terms or self._steps % _COMPARED_EVERY != _COMPARED_FIRST:
            return
        on_cuda, before = self._task.rew_buf.is_cuda, self._apart
        apart = self._share_apart()
        if apart is None:
            return
        if on_cuda:  # the number of the last comparison has arrived
            self._apart = torch.zeros((), pin_memory=True)
            self._apart.copy_(apart, non_blocking=True)
            apart = before
        if apart is not None and float(apart) > 0.5:
            self._told = True
            log.warning(
                "%s: its own reward is not the sum of its terms%s: it has further factors or summands, which may change"
                " in a training. The human baseline has them; a candidate that adds up reward_terms does not, and"
                " factors of --terms have no effect",
                type(self._task).__name__,
                "" if self.scaled else " times reward_scales",
            )

    def _share_apart(self) -> Tensor | None:
        """Return the share of environments whose reward is not a sum of terms, also if the sum is bounded by 0.

        Only episodes that go on count, because a fixed reward at the end is not a term. None if scales are not known.
        """
        task = self._task
        scales = dict.fromkeys(self._terms, 1.0) if self.scaled else getattr(task, "reward_scales", {})
        if task.rew_buf.numel() != task.num_envs or not all(name in scales for name in self._terms):
            return None
        parts = {name: scales[name] * term for name, term in self._terms.items()}
        end = parts.pop(_END, torch.zeros_like(task.rew_buf.view(-1)))
        total, size = sum(parts.values(), torch.zeros_like(end)), sum(x.abs() for x in parts.values())
        sums = torch.stack((total, total.clamp(min=0.0))) + end
        fits = ((task.rew_buf.view(-1) - sums).abs() <= 1e-5 * size + 1e-7).any(dim=0)
        goes_on = task.reset_buf.view(-1) == 0
        return (goes_on & ~fits).sum() / goes_on.sum().clamp(min=1)

    def _noting(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def noting(*args: Any, **kwargs: Any) -> Any:
            term = function(*args, **kwargs)
            self._note(name, term)
            return term

        return noting

    def _note(self, name: str, term: Any) -> None:
        if isinstance(term, Tensor) and term.numel() in (1, self._task.num_envs):
            self._terms[name].copy_(term.detach().view(-1))
        elif isinstance(term, (int, float)):  # such as unitree_rl_gym's reward for being alive
            self._terms[name].fill_(term)

    def _try(self, terms: Callable[[], dict[str, Any]]) -> None:
        """Note the terms of a function."""
        try:
            for name, term in terms().items():
                self._note(name, term)
        except Exception:  # such as code for TorchScript alone
            if not self.on_trial:
                raise
            self.drop()

    def drop(self) -> None:
        """Forget the terms of a function: the task has none."""
        if self._summands:
            delattr(self._task, TERMS)
            self._summands, self._terms = None, {}

    def _zeros(self) -> Tensor:
        return torch.zeros(self._task.num_envs, device=self._task.device)

    def _is_sums(self, value: Any) -> bool:
        shapes = {getattr(x, "shape", None) for x in value.values()} if isinstance(value, dict) else set()
        return shapes == {(self._task.num_envs,)}


# operators whose result in a row is the same wherever the row is in a longer tensor: copies, comparisons, arithmetic
# that IEEE 754 rounds exactly, draws by row; a vectorized exponential may round otherwise at the end of a tensor
_BY_ROW = set(
    """
    abs add alias __and__ arange as_strided bitwise_and bitwise_not bitwise_or bitwise_xor cat ceil clamp clamp_max
    clamp_min clone contiguous copy detach div empty empty_like empty_strided eq expand expand_as fill flatten floor
    floor_divide full full_like gather ge gt index index_put _index_put_impl index_select le lift_fresh logical_and
    logical_not logical_or __lshift__ lt masked_fill maximum minimum mul ne neg new_empty new_ones new_zeros nonzero
    ones ones_like __or__ permute rand rand_like randint reciprocal remainder repeat reshape _reshape_alias
    resolve_conj resolve_neg round __rshift__ rsub scalar_tensor scatter select sign slice split sqrt squeeze stack
    sub t to _to_copy transpose type_as unbind uniform _unsafe_view unsqueeze view view_as where __xor__ zero zeros
    zeros_like
    """.split()  # noqa: SIM905
)
_WATCHED = 16  # calls of a reset, before it is known which operators it has


class _Mixes(BaseException):  # no task's own "except Exception" may take it
    """An operator may mix rows."""


class ByRow(TorchDispatchMode):
    """Watches whether code has only operators that treat each row by itself. Rows are those of the first axis.

    Attributes:
        mixes: whether it had another one.
        strict: whether another one raises before it runs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.mixes = self.strict = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        name = func._schema.name.partition("::")[2]
        short = name if name.endswith("__") else name.removesuffix("_")
        is_short_norm = name == "linalg_vector_norm" and args[0].shape[-1] <= 4 and args[2:3] == ([-1],)
        if (short not in _BY_ROW and not is_short_norm) or _takes_a_row(short, args):
            self.mixes = True
            if self.strict:
                raise _Mixes
        return func(*args, **(kwargs or {}))


def _takes_a_row(name: str, args: Any) -> bool:
    """Return whether an operator takes some rows by their number, as ``x[env_ids][0]`` does."""
    if name == "slice":
        axis, *bounds = (*args[1:], *(0, None, None, 1)[len(args) - 1 :])
        count = args[0].shape[axis]
        if len(range(count)[slice(*bounds)]) in (0, count):
            return False
    elif name in ("select", "unbind", "split"):
        axis = (*args, 0)[2 if name == "split" else 1]
    else:
        return False
    return axis % max(args[0].dim(), 1) == 0


class Resets:
    """Resets of some environments, with random numbers of their own; rows of other environments are restored.

    Args:
        source: where the task comes from, for messages.
        driver, scene, draws: of the task.
        unmasked: restores rows of other environments.
        randomizer: None without domain randomization.
    """

    def __init__(
        self,
        source: Source,
        driver: Driver,
        scene: Scene,
        draws: Draws,
        unmasked: Unmasked,
        randomizer: Randomizer | None,
    ) -> None:
        self._source, self._driver, self._scene, self._draws = source, driver, scene, draws
        self._unmasked, self._randomizer = unmasked, randomizer
        self._by_row, self._watched = ByRow(), 0
        self._foresees = randomizer is None and driver.device.type == "cuda"

    def foresee(self) -> None:
        """Save rows before it is known whether any are reset, while a device still simulates."""
        if self._foresees:
            self._unmasked.save()

    def begin(self, mask: Tensor, env_ids: Tensor, step: int) -> None:
        """Begin episodes in the environments ``env_ids``, where ``mask`` is True, and observe their first states."""
        self.randomize(mask, env_ids, step)
        if not self._foresees:
            self._unmasked.save()
        with self._source.running_code(), self._draws.generators_kept():
            if not (self._rows_alone and self._reset_together(mask, env_ids, step)):
                for group in self._by_group(mask, env_ids):
                    self._reset(group, step)
            self._draws.begin_step(-1 - step)
            with self._draws.call("observe", None, True):
                self._driver.observe()
        self._unmasked.restore(mask)

    def randomize(self, mask: Tensor, env_ids: Tensor, step: int) -> None:
        """Randomize what is due at a reset of the environments ``env_ids``, where ``mask`` is True."""
        if self._randomizer is None:
            return
        with self._source.running_code():
            self._randomizer.refresh(step)
            for group in self._by_group(mask, env_ids):
                self._randomizer.randomize(group, step)

    def overwrite(self, what: str, mask: Tensor, write: Callable[[], None]) -> bool:
        """Overwrite initial states or goals of new episodes where ``mask`` is True, and observe them again.

        Returns:
            Whether there are any.
        """
        if not bool(mask.any()):
            return False
        self._unmasked.save()
        write()
        with self._source.running_code(), self._draws.call(f"observe {what}", mask.nonzero().flatten(), True):
            self._driver.observe()
        self._unmasked.restore(mask)
        return True

    @property
    def _rows_alone(self) -> bool:
        """Whether a call for the environments of all groups had the bits of a call for each group so far."""
        mixes = self._by_row.mixes or self._draws.shared or self._draws.everything or self._driver.advances
        return self._watched >= _WATCHED and not mixes

    def _reset_together(self, mask: Tensor, env_ids: Tensor, step: int) -> bool:
        """Reset the environments of all groups in one call; undo it where the code begins to mix rows.

        Returns:
            Whether they are reset.
        """
        self._by_row.strict = True
        try:
            self._reset(env_ids, step)
        except _Mixes:
            self._unmasked.restore(torch.zeros_like(mask))
            return False
        finally:
            self._by_row.strict = False
        return True

    def _by_group(self, mask: Tensor, env_ids: Tensor) -> list[Tensor]:
        """Return the environments to reset in each call of the task's code.

        On a CPU a call has environments of one group, so that the code mixes no groups, until it is known not to. On
        CUDA it has all: results are not bitwise reproducible there, and each call costs time.
        """
        if mask.device.type != "cpu":
            return [env_ids]
        size = self._draws.group_size
        groups = mask.split(size)
        return [group.nonzero().flatten() + k * size for k, group in enumerate(groups) if bool(group.any())]

    def _reset(self, env_ids: Tensor, step: int) -> None:
        self._draws.begin_step(-1 - step)  # negative, so that draws differ from those of the step
        before = self._scene.get_state() if self._driver.advances and env_ids.device.type == "cpu" else None
        watched = self._by_row if env_ids.device.type == "cpu" else contextlib.nullcontext()
        with self._draws.call("reset", env_ids, True), self._scene.own_properties.watched(), watched:
            self._driver.reset(env_ids)
        self._watched += 1
        if before is not None:
            self._scene.undo_others(env_ids, before)
            self._driver.gym.changed()
