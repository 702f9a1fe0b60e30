"""A task whose environment is a class of its own: its construction, steps, episodes and checkpoints.

The methods of a ``DirectRLEnv`` are called in the order of its ``step``, and ``own_class.py`` drives other classes. The
resets are those that the environment of this project asks for. Random numbers are functions of seed and lane, and rows
of environments that are not reset are restored.
"""

# Isaac Lab is optional
# pyright: reportMissingImports=false

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from isaaclab.managers import EventManager
from isaaclab.sim import SimulationContext
from torch import Tensor

from envcoder_bench.core.noise import EVALUATION_STEP
from envcoder_bench.core.stream import seeded
from envcoder_bench.sources.isaacgym_tasks import tensors
from envcoder_bench.sources.isaacgym_tasks.draws import Draws
from envcoder_bench.sources.isaaclab_tasks.draws import SharedDraws
from envcoder_bench.sources.isaaclab_tasks.keys import scene_sources
from envcoder_bench.sources.isaaclab_tasks.robot import DirectRobot
from envcoder_bench.sources.isaaclab_tasks.scene_state import SceneState
from envcoder_bench.sources.isaaclab_tasks.source import Source
from envcoder_bench.sources.isaaclab_tasks.world import SEED
from envcoder_bench.sources.term_tasks.checkpoint import restore, saved
from envcoder_bench.sources.term_tasks.draws import drawing
from envcoder_bench.sources.term_tasks.quiet import quiet
from envcoder_bench.sources.term_tasks.state_reader import StateReader
from envcoder_bench.tasks.base import EnvGroups, Field, Task

OBSERVED = {"policy": "obs_buf", "critic": "critic_buf"}  # groups of observations, and their keys of the state
REFUSALS = {
    "compute_torque": "actions go to the task's own class",
    "compute_dof_target": "actions go to the task's own class",
    "compute_initial_state": "the task's own class begins its episodes",
    "compute_goal": "the task's own class draws its commands",
}
MEANING = "mean over steps of the reward of the task's own class"


@dataclass(frozen=True)
class DirectFacts:
    """What a small simulation shows of a task.

    Attributes:
        world: drives its environment.
        keys, rows, histories: its environment's tensors with a row for each environment; see ``IsaacTask``.
        alike: keys of a checkpoint, of the simulation and its managers, with a row for each environment.
        widths: columns of observations by their keys of the state.
        fields: declarations of the state.
        clip_actions: the limit of actions, of the runner's config.
    """

    source: Source
    world: type[DirectWorld]
    keys: dict[str, tensors.Slot]
    rows: dict[tensors.Slot, tensors.Row]
    histories: tuple[str, ...]
    alike: frozenset[str]
    widths: dict[str, int]
    fields: dict[str, Field]
    clip_actions: float = float("inf")


class DirectWorld(SceneState):
    """The environment of a task's own class with its scene, at the origin of the world or on a terrain.

    Attributes:
        env: the environment; ``decimation`` physics steps are one of its steps.
        longest: steps until it times out.
        num_actions: the width of its actions.
        draws: of the task that has this world; None before there is one.
        applied: actions of the last step ``(num_envs, width)``, and what the class was given, with its noise.
        shows_actions: whether observations read the actions in ``env.actions``.
    """

    applied: tuple[Tensor, Tensor] | None = None
    shows_actions = True

    def __init__(self, source: Source, num_envs: int, device: str) -> None:
        cfg, make = source.own_environment()
        SimulationContext.clear_instance()
        # what a class draws for its environments is the same for the first ones, however many there are
        with seeded(SEED, device), SharedDraws("construction"), drawing(), quiet(), without_startup():
            self.env = env = self.make(cfg, make, num_envs, device)
        self.scene, self.sim, self.device, self.steps = env.scene, env.sim, torch.device(device), 0
        self.draws: Draws | None = None
        self.learn()

    def make(self, cfg: Any, make: Any, num_envs: int, device: str) -> Any:
        cfg.scene.num_envs, cfg.scene.env_spacing, cfg.seed, cfg.sim.device = num_envs, 0.0, SEED, device
        return make(cfg)

    def learn(self) -> None:
        """Read what is the same in all steps."""
        env = self.env
        self.decimation, self.longest = int(env.cfg.decimation), int(env.max_episode_length)
        self.num_actions = int(env.actions.shape[-1])

    def held(self) -> dict[str, Any]:
        models = [getattr(self.env, f"_{name}_noise_model", None) for name in ("action", "observation")]
        return {"events": self.events, "noise": models, **super().held()}

    def sources(self) -> dict[str, Any]:
        """Return how keys of the state are read that are not attributes of the environment."""
        return scene_sources(self.scene)

    @property
    def events(self) -> Any:
        """The manager of events; None without."""
        return self.env.event_manager if self.env.cfg.events else None

    def begin(self) -> None:
        """Apply the events at the start."""
        if self.events is not None and "startup" in self.events.available_modes:
            self.events.apply(mode="startup")

    def alike(self) -> frozenset[str]:
        """Return the keys of what ``saved`` returns with a row for each environment; no indices of environments."""
        state = saved(self, [], {})
        rows = {key: x for key, x in state.items() if x.shape[:1] == (self.env.num_envs,)}
        return frozenset(key for key, x in rows.items() if x.is_floating_point() or x.dtype == torch.bool)

    def intervals(self) -> None:
        """Apply events of mode ``interval``, in a call for each, so that no event changes another one's draws."""
        if self.events is None or "interval" not in self.events.available_modes:
            return
        names, cfgs = self.events._mode_term_names["interval"], self.events._mode_term_cfgs["interval"]
        for name, cfg, left in zip(names, cfgs, self.events._interval_term_time_left):
            left -= self.env.step_dt
            due = (left < 1e-6).nonzero().flatten()
            if len(due):
                with nullcontext() if self.draws is None else self.draws.call(f"event {name}", due, True):
                    low, high = cfg.interval_range_s
                    left[due] = torch.rand(len(due), device=self.device) * (high - low) + low
                    cfg.func(self.env, due, **cfg.params)

    def count(self, steps: int) -> None:
        self.steps = self.env.common_step_counter = steps
        self.env._sim_step_counter = steps * self.decimation

    def advance(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Take a control step without resets; return rewards, which environments ended, and which timed out."""
        env = self.env
        given = _noisy(env, "action", action)
        self.applied = action, given.clone()
        env._pre_physics_step(given)
        for _ in range(self.decimation):
            env._sim_step_counter += 1
            env._apply_action()
            env.scene.write_data_to_sim()
            env.sim.step(render=False)
            env.scene.update(dt=env.physics_dt)
        env.episode_length_buf += 1
        self.count(self.steps + 1)
        env.reset_terminated[:], env.reset_time_outs[:] = env._get_dones()
        env.reset_buf = env.reset_terminated | env.reset_time_outs
        env.reward_buf = env._get_rewards()
        return env.reward_buf, env.reset_terminated, env.reset_time_outs

    def reset(self, ids: Tensor) -> None:
        """Begin episodes."""
        self.env._reset_idx(ids)
        self.env.episode_length_buf[ids] = 0  # some classes spread the first episodes

    def observed(self) -> dict[str, Tensor]:
        """Return the groups of observations."""
        observed = self.env._get_observations()
        return {**observed, "policy": _noisy(self.env, "observation", observed["policy"])}

    def first(self) -> None:
        """Use what is made when it is first used."""
        _noisy(self.env, "action", self.env.actions)

    def drawing(self) -> list[Any]:
        """Return the objects whose methods draw random numbers."""
        return [self.env]

    def after_resets(self) -> None:
        """Do what follows the resets of a step."""
        self.intervals()


class DirectTask(Task):
    """A task with an environment class of its own; candidates replace its reward, observation and end of an episode."""

    regroups = False
    goal_keys: tuple[str, ...] = ()
    quaternions = "wxyz"
    refusals: Mapping[str, str] = REFUSALS
    fitness_meaning = MEANING
    clip_observations = float("inf")

    def __init__(self, facts: DirectFacts, cfg: Mapping[str, Any], num_envs: int, device: str) -> None:
        self.cfg, self.num_envs, self.name = cfg, num_envs, facts.source.name
        self.clip_actions, self.fields = facts.clip_actions, dict(facts.fields)
        self._facts, self.device = facts, torch.device(device)
        self.world = world = facts.world(facts.source, num_envs, device)
        self.env = env = world.env
        self.dt, self.substeps = float(env.step_dt), world.decimation
        self.max_episode_length = world.longest + 1  # IsaacGymEnvs' time-out comes one step earlier
        self.default_action_dim = self.num_dofs = world.num_actions
        self.engine_warnings: dict[str, int] = {}
        self.unstable = torch.zeros(num_envs, dtype=torch.bool, device=device)
        self.timed_out = self._time_outs = torch.zeros_like(self.unstable)
        self.contact_overflows = torch.zeros(num_envs, dtype=torch.int32, device=device)
        self.first_progress = self._first_progress = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self._robot: DirectRobot | None = None
        self._draws = world.draws = Draws(num_envs, self.device)
        for part in world.drawing():
            self._draws.wrap(part)
        self._everything = self._draws.everything
        with self._draws.call("first", None, self._everything), torch.no_grad():
            world.reset(torch.arange(num_envs, device=device))
            env.reset_buf, env.reward_buf = self.unstable.clone(), torch.zeros(num_envs, device=device)
            world.observed()  # what is made when it is first used
            world.first()
        self._mirror = tensors.Mirror(env, facts.keys, facts.rows, num_envs, self.device)
        self._unmasked = tensors.Unmasked(env, facts.rows, facts.histories)
        self._reader = StateReader(world.sources())
        self.state = {
            **self._mirror.state,
            **self._reader.tensors,
            "reward_buf": torch.zeros(num_envs, device=device),
            **{key: torch.zeros(num_envs, width, device=device) for key, width in facts.widths.items()},
            "reset_buf": torch.zeros_like(self.unstable),
        }
        self.constants = {"max_episode_length": torch.tensor(self.max_episode_length)}
        self.default_state: dict[str, Tensor] = {}
        self._pristine = self.get_state()
        self.attach(EnvGroups.alone(num_envs, torch.zeros(num_envs, self.num_dofs, device=device)))

    @property
    def bytes_per_env(self) -> int:
        of_state = sum(x.numel() * x.element_size() for x in self.state.values()) // self.num_envs
        return self.world.sim.running.engine.bytes_per_env + 2 * of_state

    def pose_source(self) -> Any:
        source = getattr(self.world.sim.running.engine, "pose_source", None)
        return None if source is None else source()

    # groups

    def attach(self, groups: EnvGroups) -> None:
        """Give each lane what the first group's has, whatever was drawn for the others at the construction."""
        self._groups, lanes = groups, groups.lanes
        self._draws.seeds, self._draws.lanes, self._draws.group_size = groups.seeds, lanes, groups.size
        self.world.sim.activate()
        rows, alike = lanes.cpu(), self._facts.alike
        self.set_state({key: x[rows] if key in alike else x for key, x in self._pristine.items()})
        tensors.make_alike(self.env, self._facts.rows, self._facts.histories, lanes)
        self.world.place(groups.seeds, lanes)
        self._draws.begin_step(-1)
        with self._draws.call("startup", None, True), torch.no_grad():
            self.world.begin()
        self._reader.used, self._spread = groups.keys, True
        self._first = self.get_state()

    def robot(self) -> DirectRobot:
        self._robot = DirectRobot(self.world)
        return self._robot

    def set_drive_mode(self, effort: Tensor) -> None:
        pass

    def default_dof_target(self, action: Tensor, state: dict[str, Tensor]) -> Tensor:
        return torch.zeros_like(action)  # unused: the action goes to the class's own methods

    def refresh_state(self) -> None:
        self._mirror.sync()
        self._reader.refresh(everything=True)

    def _sync(self) -> None:
        self._mirror.sync()
        self._reader.refresh()

    # one control step

    @torch.no_grad()
    def step(self, command: Tensor) -> None:
        world = self.world
        world.sim.activate()
        self._draws.begin_step(self.step_count)
        with self._draws.call("step", None, self._everything):
            reward, terminated, time_outs = world.advance(self._groups.actions[:, : self.num_dofs].clone())
        world.take_failures(self.unstable, self.contact_overflows)
        self.state["reward_buf"].copy_(reward)
        self.state["reset_buf"].copy_(terminated)
        self._time_outs.copy_(time_outs)
        self._sync()

    # episodes

    @torch.no_grad()
    def prepare_reset(self, mask: Tensor) -> None:
        """Begin episodes where ``mask`` is True, by calls for each group, so that groups cannot be mixed.

        A whole group is reset in two calls: a class that does something else where ``env_ids`` are all environments
        would do it for a candidate alone, and not among others.
        """
        self.world.sim.activate()
        if bool(mask.any()):
            self._unmasked.save()
            for k, group in enumerate(mask.split(self._groups.size)):
                ids = group.nonzero().flatten() + k * self._groups.size
                self._draws.begin_step(-2 - self.step_count)  # others than those of the step
                whole = len(ids) == self._groups.size
                for some in ids.tensor_split([1]) if whole else [ids]:
                    if len(some):
                        with self._draws.call("reset", some, self._everything):
                            self.world.reset(some)
            self._unmasked.restore(mask)
        self._first_progress.zero_()
        if self._spread and self.step_count < EVALUATION_STEP:  # as rsl_rl begins a training
            with self._draws.call("episode_length", None, False):
                lengths = torch.randint(0, self.max_episode_length - 1, (self.num_envs,), device=self.device)
            self._first_progress.copy_(lengths)
            self.env.episode_length_buf.copy_(lengths)
        self._spread = False

    def reset(self, mask: Tensor, initial: dict[str, Tensor], goal: dict[str, Tensor]) -> None:
        pass  # all of it is in ``prepare_reset``

    @torch.no_grad()
    def settle(self) -> None:
        """Apply events of intervals, and observe, after the resets of a step."""
        self._draws.begin_step(self.step_count)
        self.world.after_resets()
        erring = nullcontext() if self._robot is None else self._robot.observing()
        with self._draws.call("observe", None, self._everything), erring:
            observed = self.world.observed()
        for group, key in OBSERVED.items():
            if key in self.state:
                self.state[key].copy_(observed[group])
        self._sync()

    def fitness(self, state: dict[str, Tensor]) -> Tensor:
        return state["reward_buf"]

    # checkpoints

    def _live(self) -> dict[str, Tensor]:
        return {**self.state, "unstable": self.unstable, "timed_out": self._time_outs}

    def get_state(self) -> dict[str, Tensor]:
        own = {f"own/{key}": x for key, x in tensors.save(self.env).items()}
        return {**saved(self.world, [], self._live()), **own}

    def set_state(self, state: dict[str, Tensor]) -> None:
        self.world.sim.activate()
        restore(self.world, [], self._live(), {key: x for key, x in state.items() if not key.startswith("own/")})
        own = {key[len("own/") :]: x for key, x in state.items() if key.startswith("own/")}
        tensors.restore(self.env, own, self.device)
        self._spread = False

    def restart(self) -> None:
        self.set_state(self._first)
        evaluates = EVALUATION_STEP <= self.step_count < 2 * EVALUATION_STEP
        self.world.place(self._groups.seeds, self._groups.lanes, evaluates)


def _noisy(env: Any, which: str, x: Tensor) -> Tensor:
    """Return actions or observations with the noise of the config; until 2.3 a model has a method for it."""
    if not getattr(env.cfg, f"{which}_noise_model"):
        return x
    model = getattr(env, f"_{which}_noise_model")
    return getattr(model, "apply", model)(x)


@contextmanager
def without_startup() -> Iterator[None]:
    """Let the constructor of a class inside the block leave out the events at the start, which ``begin`` applies."""
    apply = EventManager.apply

    def others(self: Any, mode: str, *args: Any, **kwargs: Any) -> None:
        if mode != "startup":
            apply(self, mode, *args, **kwargs)

    EventManager.apply = others
    try:
        yield
    finally:
        EventManager.apply = apply


@functools.cache
def probe(source: Source, make: type[DirectWorld], num_envs: int = 37) -> tuple[DirectWorld, dict[str, Tensor]]:
    """Return a world of ``num_envs``, a prime that no other axis has, after steps, and what it observes."""
    world = make(source, num_envs, "cpu")
    with seeded(0), quiet(), torch.no_grad():
        world.reset(torch.arange(num_envs))
        for _ in range(3):
            world.advance(2.0 * torch.rand(num_envs, world.num_actions) - 1.0)
            observed = world.observed()
    return world, {key: observed[group] for group, key in OBSERVED.items() if group in observed}
