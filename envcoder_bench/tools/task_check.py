"""Checks of the contract that every task must fulfil; the tests of the shipped tasks use them, too."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.core.errors import UserError, first_line, type_and_line, user_input
from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.core.settings import merged, nested, select
from envcoder_bench.core.stream import seeded
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.run.config import compose_config, find_task
from envcoder_bench.run.prepare.environments import build_task
from envcoder_bench.run.prepare.groups import Group, prepare
from envcoder_bench.run.prepare.run_files import baseline_sources
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.shaping.contract import CandidateError, assemble
from envcoder_bench.shaping.kinds import TERMINAL, TORQUE
from envcoder_bench.shaping.loading import load_candidate
from envcoder_bench.shaping.state import StateDict, bind, own_constants
from envcoder_bench.sim import pick_simulator
from envcoder_bench.sim.robot_file import NOTHING_TO_STAND_ON, lacks_ground
from envcoder_bench.tasks.base import BASELINE_FILES, HUMAN, UNSHAPED, Task
from envcoder_bench.tasks.contract import TaskContract
from envcoder_bench.tasks.spec import Can
from envcoder_bench.tasks.task_code import computed, frozen, frozen_message
from envcoder_bench.tools.isolation import measure_isolation

FREQUENCY = "task.randomization_params.frequency"  # a key of IsaacGymEnvs' tasks
ENV_KEYS = ("actions", "progress_buf")  # keys of the state that the environment adds
_STEP = ("obs", "reward", "terminated", "truncated")
ERRORS = (ValueError, RuntimeError, TypeError, KeyError, IndexError, AttributeError, UserError)  # a task's code raises
UNSTABLE = 0.001  # largest share of unstable steps with random actions


class TaskFaults(UserError):
    """A task violates the contract.

    Attributes:
        findings: the violations, one line each.
    """

    def __init__(self, task: str, findings: Sequence[str]) -> None:
        lines = [f"{task}: {len(findings)} of the checks fail:", *(f"- {finding}" for finding in findings)]
        super().__init__("\n".join(lines))
        self.findings = list(findings)


class TaskCheck:
    """The checks of a task on a simulator, with the human baseline's episodes and actions.

    Raises UserError, ValueError or CandidateError if the task does not exist, or its files are invalid.
    """

    def __init__(self, task: str, sim: str = "auto", device: str = "auto", overrides: Sequence[str] = ()) -> None:
        self.spec = find_task(task)
        cfg = compose_config(self.spec, ["num_envs_per_candidate=4", "compile_shapers=false", *overrides])
        self.sim, self.device = pick_simulator(sim, device)
        config, frequency = cfg.task, select(cfg.task, FREQUENCY)
        if isinstance(frequency, (int, float)):  # domain randomization must occur within the checks' steps
            config = merged(config, nested({FREQUENCY: min(frequency, 20)}))
        self.run = RunSpec(self.spec, cfg).changed(task=config, sim=self.sim, device=self.device)
        self.cfg, self.name = self.run.config, self.spec.name
        path = self.spec.baseline_path(HUMAN, config)
        human = load_candidate(HUMAN, path.read_text(encoding="utf-8"), str(path))
        self.human = replace(assemble(human, human), action_dim=human.action_dim or 0)

    def baselines(self) -> Generator[str, None, dict[str, Group]]:
        """Yield the faults of the baselines, and return the groups of the sound ones."""
        groups, faults = prepare(replace(self.run, sources=tuple(baseline_sources(self.spec, self.cfg.task))))
        yield from (f"{name}.py: {error}" for name, error in faults.items())
        return {group.name: group for group in groups}

    def make(self, num_envs: int) -> Task:
        """Create a task whose commands are those of the human baseline."""
        task = self.spec.make(self.cfg.task, num_envs, self.sim, self.device)
        effort = self.human.functions.get("command") is not None and self.human.functions["command"].type == TORQUE
        task.set_drive_mode(torch.full((num_envs,), effort, device=self.device))
        return task

    def begin(self, num_envs: int) -> Task:
        """Create a task and begin the human baseline's first episodes, with equal random numbers."""
        task = self.make(num_envs)
        everywhere = torch.ones(num_envs, dtype=torch.bool, device=self.device)
        start = {key: x.clone() for key, x in task.default_state.items()}
        with seeded(0, self.device):
            start.update(self._call("initial_state", task))
            task.reset(everywhere, start, {})
            goal = self._call("goal", task)
            if goal:
                task.reset(everywhere, {}, goal)
        return task

    def _call(self, stage: str, task: Task) -> dict[str, Tensor]:
        """Return the result of the human baseline's function; empty without a function."""
        function = self.human.functions.get(stage)
        result: Any = {} if function is None else bind(function, self._inputs(task))()
        return result

    def _inputs(self, task: Task) -> StateDict:
        n, width = task.num_envs, (task.fields["actions"].shape or (1,))[0]
        env_keys = {"actions": torch.zeros(n, width), "progress_buf": torch.zeros(n, dtype=torch.int64)}
        env_keys = {key: x.to(task.device) for key, x in env_keys.items()}
        return StateDict({**task.state, **env_keys, **own_constants(task.constants, task.device)})

    def commands(self, task: Task, steps: int, seed: int = 0) -> Iterator[Any]:
        """Yield random commands ``(num_envs, num_dofs)`` in the human baseline's action space."""
        function, state = self.human.functions.get("command"), self._inputs(task)
        width = self.human.action_dim or task.default_action_dim or state["actions"].shape[1]
        generator = torch.Generator().manual_seed(seed)
        for _ in range(steps):
            action = (2.0 * torch.rand(task.num_envs, width, generator=generator) - 1.0).to(task.device)
            if function is None:
                yield task.default_dof_target(action, state)
            else:
                yield bind(function, state, action)()

    def differences(self, task: Task, other: Task, rows: Any = slice(None)) -> list[str]:
        """Return the keys of the states that differ in the environments ``rows``."""
        return self.unequal(
            {key: x[rows] for key, x in task.state.items()}, {key: x[rows] for key, x in other.state.items()}
        )

    def unequal(self, state: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> list[str]:
        """Return the keys that differ: bitwise on the CPU; on CUDA contact forces are sums in varying order."""
        close = 0.0 if self.device == "cpu" else 1e-2
        missing = [key for key in state if key not in other]
        both = [(key, x, other[key]) for key, x in state.items() if key in other]
        return missing + [key for key, x, y in both if not torch.allclose(x, y, rtol=close, atol=close)]

    # the checks, each a method that yields violations

    def ground(self) -> Iterator[str]:
        """A robot that floats has something to stand on."""
        model = self.spec.model_path
        if model is not None and self.spec.ground(self.cfg.task) is None and lacks_ground(model):
            yield f"{model.name}: {NOTHING_TO_STAND_ON}"

    def fields(self) -> Iterator[str]:
        """Every key of the state and the constants is declared with its shape, and can be read by kernels."""
        task = self.make(2)
        keys = {**task.state, **task.constants}
        yield from (
            f"'{key}' is in the state, but fields does not declare it" for key in keys if key not in task.fields
        )
        # declared keys
        for key, field in task.fields.items():
            if key in ENV_KEYS:
                continue
            if key not in keys:
                yield f"fields declares '{key}', which is neither in state nor in constants"
            elif (field.shape is None) != (key in task.constants):
                yield f"'{key}' is in {'state' if key in task.state else 'constants'}, and its shape is {field.shape}"
            else:
                yield from _tensor_faults(key, keys[key], field.shape, task, self.spec.model_path is None)
            if "|" in field.unit + field.meaning:
                yield f"'{key}': '|' in its unit or meaning breaks tables"
        if "dof_pos" in task.fields and task.fields["dof_pos"].shape != (task.num_dofs,):
            yield f"'dof_pos' is declared as {task.fields['dof_pos'].shape}, and there are {task.num_dofs} joints"
        for key in task.default_state:
            if key not in task.state:
                yield f"default_state has '{key}', which is not in state"
        if not task.fitness_meaning or not (task.bytes_per_env > 0):
            yield "fitness_meaning must not be empty, and bytes_per_env must be positive"
        # the jail gets the contract as plain data
        plain = TaskContract.of(task)
        if TaskContract.from_plain(plain.to_plain()) != plain:
            yield "its contract is not plain data"

    def fitness(self) -> Iterator[str]:
        """Fitness is one finite number per environment and depends only on the state."""
        task = self.begin(3)
        for command in self.commands(task, 3):
            task.step(command)
        value = task.fitness(task.state)
        if tuple(value.shape) != (3,):
            yield f"fitness returns {value.dtype} {tuple(value.shape)}: for 3 environments it must be (3,)"
        elif not bool(torch.isfinite(value).all()):
            yield f"fitness returns {value.tolist()}: it must be finite"
        elif not torch.equal(value, task.fitness(task.state)):
            yield "fitness of one state differs from call to call: it must depend only on the state"
        if tuple(task.fitness({key: x[:2] for key, x in task.state.items()}).shape) != (2,):
            yield "fitness of the state of 2 environments must be (2,): read the state that is given, not self.state"

    def ends(self) -> Iterator[str]:
        """The conditions that end episodes are together the terminal function of the unshaped baseline."""
        task = self.begin(16)
        for command in self.commands(task, 3):
            task.step(command)
        generator = torch.Generator().manual_seed(1)
        for x in task.state.values():  # states as they occur late in an episode, or never
            if x.is_floating_point():
                factor, shift = (6.0 * torch.rand(2, *x.shape, generator=generator) - 3.0).to(x)
                x.copy_(factor * x + shift)
        conditions = task.ends()
        if conditions:
            path = self.spec.baseline_path(UNSHAPED, self.cfg.task)
            unshaped = load_candidate(UNSHAPED, path.read_text(encoding="utf-8"), str(path))
            wanted: Any = bind(unshaped.functions[TERMINAL], self._inputs(task))()
            together = torch.stack([*conditions.values()]).any(dim=0)
            if not torch.equal(together, wanted.bool()):
                yield f"the conditions of ends, {_quote_all([*conditions])}, are not compute_terminal of {path.name}"

    def rollout(self) -> Iterator[str]:
        """Equal starts give equal rollouts."""
        task, twin = self.begin(3), self.begin(3)
        before, computed_before = {key: x.clone() for key, x in task.state.items()}, computed(task)
        for step, command in enumerate(self.commands(task, 10)):
            task.step(command)
            twin.step(command)
            yield from _once(self.differences(task, twin), f"after {step + 1} steps, two equal rollouts differ in")
        if all(torch.equal(x, task.state[key]) for key, x in before.items()):
            yield "10 steps of random actions do not change the state"
        yield from map(frozen_message, frozen(task, computed_before))

    def reset(self) -> Iterator[str]:
        """A reset forgets the past where its mask is True, changes nothing elsewhere, and replaces no tensor."""
        task, twin, fresh = self.begin(4), self.begin(4), self.begin(4)
        start = {key: fresh.state[key].clone() for key in fresh.default_state}
        goal = {key: fresh.state[key].clone() for key in fresh.goal_keys}
        places = {key: x.data_ptr() for key, x in task.state.items()}
        mask = torch.tensor([True, False, True, False], device=self.device)
        # give the environments a past
        for command in self.commands(task, 8):
            task.step(command)
            twin.step(command)
        for values in (start, goal):  # only the masked rows may be read
            for x in values.values():
                x[~mask] = torch.nan
        task.reset(mask, start, {})
        task.reset(mask, {}, goal)
        # compare after the reset, and in the steps that follow, which show hidden state of the simulator
        yield from _once(
            self.differences(task, fresh, mask), "after a reset, the masked environments differ from new ones in"
        )
        yield from _once(self.differences(task, twin, ~mask), "a reset changes environments that are not masked in")
        for command in self.commands(task, 4, seed=1):
            for each in (task, twin, fresh):
                each.step(command)
            yield from _once(self.differences(task, fresh, mask), "a step after a reset depends on the past in")
            yield from _once(self.differences(task, twin, ~mask), "after a reset, unmasked environments change in")
        moved = [key for key, address in places.items() if task.state[key].data_ptr() != address]
        if moved:
            yield f"step or reset replaces the tensors of {_quote_all(moved)}: change them in place, with copy_"

    def restore(self) -> Iterator[str]:
        """Another task continues bitwise from the result of get_state."""
        task, other = self.begin(2), self.begin(2)
        for command in self.commands(task, 6):
            task.step(command)
        saved = task.get_state()
        kept = {key: x.clone() for key, x in saved.items()}
        other.set_state(saved)
        yield from _once(self.differences(task, other), "set_state does not restore (see kept_keys)")
        for command in self.commands(task, 4, seed=1):
            task.step(command)
            other.step(command)
            yield from _once(self.differences(task, other), "a restored task continues differently (see kept_keys) in")
        changed = [key for key, x in kept.items() if not torch.equal(saved[key], x)]
        if changed:
            yield f"the result of get_state changes with the next step: {_quote_all(changed)} must be copies"

    def paired(self) -> Iterator[str]:
        """An environment depends neither on the number of environments nor on its index, as paired noise requires."""
        seven, single = self.begin(7), self.make(1)
        start = {key: seven.state[key][:1].clone() for key in seven.default_state}
        goal = {key: seven.state[key][:1].clone() for key in seven.goal_keys}
        everywhere = torch.ones(1, dtype=torch.bool, device=self.device)
        single.reset(everywhere, start, {})
        single.reset(everywhere, {}, goal)
        for command in self.commands(seven, 10):
            seven.step(command)
            single.step(command[:1])
        first = {key: x[:1] for key, x in seven.state.items()}
        yield from _once(self.unequal(single.state, first), "an environment alone differs from one among 7 in")
        # two groups of one candidate, which also draw the same numbers
        groups = yield from self.baselines()
        if len(groups) == len(BASELINE_FILES):
            n, unshaped = 4, groups[UNSHAPED].shaping
            task = build_task(self.run, 2 * n)
            env = GroupedVecTask(task, GroupLayout(2, n), [unshaped] * 2, [0, 0])
            env.reset()
            halves = [{key: x[rows] for key, x in task.state.items()} for rows in (slice(0, n), slice(n, 2 * n))]
            yield from _once(self.unequal(*halves), "two groups of one candidate and seed begin differently in")

    def random_actions(self, steps: int = 1000, baselines: Sequence[str] = BASELINE_FILES) -> Iterator[str]:
        """With random actions for ``steps`` steps, the training environment stays finite and stable."""
        groups = yield from self.baselines()
        chosen = [group for name, group in groups.items() if name in baselines]
        if chosen:
            yield from self._play(chosen, steps)

    def _play(self, groups: Sequence[Group], steps: int) -> Iterator[str]:
        layout = GroupLayout(len(groups), self.cfg.num_envs_per_candidate)
        task = build_task(self.run, layout.num_envs)
        env = GroupedVecTask(task, layout, [group.shaping for group in groups], [0] * len(groups))
        env.reset()
        ended, generator = 0, torch.Generator().manual_seed(0)
        for step in range(steps):
            action = 2.0 * torch.rand(env.actions.shape, generator=generator) - 1.0
            step_result = env.step(action.to(self.device))
            ended += int(step_result.done.sum())
            if not (bool(torch.isfinite(step_result.obs).all()) and bool(torch.isfinite(step_result.reward).all())):
                yield f"random actions give an observation or a reward that is not finite at step {step}"
                return
        # candidates must go on, episodes end, and the physics stay stable
        for name, alive in zip((group.name for group in groups), env.alive):
            if not alive:
                yield f"{name}.py was stopped while random actions were played"
        if not ended and steps >= env.full_episode:
            yield f"no episode ended in {steps} steps, but an episode has at most {env.full_episode}"
        unstable = int(env.stats.unstable_resets.sum())
        if unstable > UNSTABLE * steps * env.num_envs:
            remedy = "lower the forcerange of drives, raise sim.substeps, or give light links armature"
            yield f"random actions blew up the physics {unstable} times in {steps * env.num_envs} steps: {remedy}"
        if bool(env.take_contact_overflows().any()):
            yield "the model's contact buffers are too small: see max_contacts in docs/add_a_task.md"

    def isolation(self) -> Iterator[str]:
        """A candidate beside others learns bit by bit what it learns alone; measured only on a CPU."""
        if self.device != "cpu":
            return
        groups = yield from self.baselines()
        if len(groups) == len(BASELINE_FILES):
            measured = measure_isolation(self.run, groups[HUMAN], groups[UNSHAPED])
            if not measured.clean:
                yield f"{measured}: use --isolate process"

    def checkpoint(self, steps: int = 150) -> Iterator[str]:
        """A new environment continues bitwise from another one's checkpoint; measured only on a CPU."""
        if self.device != "cpu":
            return
        groups = yield from self.baselines()
        if len(groups) < len(BASELINE_FILES):
            return
        layout = GroupLayout(len(groups), self.cfg.num_envs_per_candidate)
        shapings, seeds = [group.shaping for group in groups.values()], [0] * len(groups)
        env, other = (GroupedVecTask(build_task(self.run, layout.num_envs), layout, shapings, seeds) for _ in "12")
        generator = torch.Generator().manual_seed(0)
        env.reset()
        for step in range(2 * steps):
            action = 2.0 * torch.rand(env.actions.shape, generator=generator) - 1.0
            if step == steps:  # in the middle of episodes
                other.set_state(env.get_state())
            step_result = env.step(action)
            # both environments take the same steps after the checkpoint
            if step < steps:
                continue
            again = other.step(action)
            if not all(torch.equal(getattr(step_result, part), getattr(again, part)) for part in _STEP):
                yield f"an environment that was restored from a checkpoint differs {step - steps + 1} steps later"
                return

    def findings(self) -> list[str]:
        """Return the violations of all checks."""
        try:
            self.make(2)
        except ERRORS as error:  # every check would fail with it
            return [*getattr(error, "findings", [_describe(error)]), *self.ground()]
        faults: list[str] = list(self.ground())
        checks = [self.fields, self.fitness, self.ends, self.rollout, self.reset, self.restore, self.paired]
        checks.append(self.random_actions)
        # a reset by the task's own code may keep some of the past, and some code needs two environments
        if Can.ANY_RESET not in self.spec.can:
            others = [check for check in checks if check not in (self.reset, self.paired)]
            checks = [*others, self.checkpoint, self.isolation]
        for check in checks:
            try:
                faults += check()
            except ERRORS as error:
                faults.append(f"{check.__name__}: {_describe(error)}")
        return list(dict.fromkeys(faults))


def check_task(task: str | Path, sim: str = "auto", device: str = "auto", overrides: Sequence[str] = ()) -> None:
    """Check that a task fulfils its contract; takes seconds on a CPU.

    Fields describe the state; fitness is finite and depends only on the state; equal starts give equal rollouts; a
    reset forgets the past and reads only masked rows; ``set_state`` continues bitwise; an environment depends neither
    on its index nor on the number of environments; both baselines load and pass the checks; 1,000 steps of random
    actions are finite. For Isaac Gym tasks, candidates are isolated, and checkpoints continue bitwise; with domain
    randomization, its ``frequency`` is at most 20 here.

    Args:
        task: its name, its folder or ``module:Class``.
        sim, device: see cfg/config.yaml.
        overrides: ``key=value`` for the config.

    Raises:
        TaskFaults: the task violates the contract; ``findings`` has one line per violation.
        UserError: the task does not exist, or its files are invalid.
    """
    try:
        with user_input():
            check = TaskCheck(str(task), sim, device, overrides)
    except CandidateError as error:
        raise UserError(str(error)) from error
    findings = check.findings()
    if findings:
        raise TaskFaults(check.name, findings)


def _tensor_faults(key: str, x: Tensor, shape: tuple[int, ...] | None, task: Task, any_kind: bool) -> Iterator[str]:
    if shape is None:
        if x.device.type != "cpu":
            yield f"the constant '{key}' must be on the CPU"
        return
    if tuple(x.shape) != (task.num_envs, *shape):
        yield f"'{key}' is declared as (n, *{shape}), but with n = {task.num_envs} its tensor is {tuple(x.shape)}"
    elif x.device != task.device:
        yield f"'{key}' is on {x.device}: it must be on {task.device}"
    elif not x.is_floating_point() and not any_kind:
        yield f"'{key}' is {x.dtype}: it must be floating point"
    elif not x[0].is_contiguous():
        yield f"'{key}' is not contiguous, as kernels require: make it a copy, refreshed in step and reset"


def _describe(error: Exception) -> str:
    return first_line(error) if isinstance(error, (ValueError, UserError)) else type_and_line(error)


def _once(keys: Sequence[str], what: str) -> Iterator[str]:
    if keys:
        yield f"{what} {_quote_all(keys)}"


def _quote_all(keys: Sequence[str]) -> str:
    return ", ".join(f"'{key}'" for key in keys)
