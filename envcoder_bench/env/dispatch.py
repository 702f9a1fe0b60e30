"""Dispatch of every group's functions on its slice into padded buffers. A fault stops only the group concerned."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.compile.program import ACTION
from envcoder_bench.core import noise
from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.core.profiling import COMPARISON, REST, span
from envcoder_bench.core.torch_settings import deterministic_torch, is_deterministic
from envcoder_bench.env import cuda_graphs
from envcoder_bench.env.compiled import Compiler
from envcoder_bench.env.components import Components
from envcoder_bench.env.input_copies import GroupCopies, Guard, no_changes
from envcoder_bench.env.stages import Call, Stage, device_copies, into
from envcoder_bench.shaping import outputs
from envcoder_bench.shaping.checking import in_place
from envcoder_bench.shaping.contract import Fault, Patch, Shaping, read_fault, sections_of
from envcoder_bench.shaping.faults import FAULTS, Mutation, at_step, from_exception, noting_returns, return_line
from envcoder_bench.shaping.kinds import ANY, STAGES, VALUE, Kind
from envcoder_bench.shaping.state import bind, own_constants
from envcoder_bench.tasks.base import Task

POLICY = "the policy's action"
_PLAIN = nullcontext()


class Dispatcher:
    """Runs the functions of all groups.

    Every method returns a buffer ``(num_envs, ...)`` that its next call overwrites. A group becomes *dead* if one of
    its functions raises, returns an invalid or non-finite result, or changes its input: its functions are no longer
    called, its reward, command and observation are zeros, and it is never terminal. On the CPU faults are detected at
    once; on CUDA the results of a function that changed its input or are not finite are masked at once, and appear in
    ``alive`` and ``failures`` after ``poll``.

    Functions that are called receive copies of their group's rows (``input_copies``), so that they can write neither
    into the state nor into another group's inputs. The copies are contiguous tensors of the group's own size, so that
    results on the CPU are bitwise independent of its neighbours. On CUDA all groups' functions of one kind are one CUDA
    graph.

    Args:
        shapings: checked shapings, one per group, each with modules of its own.
        views: each group's views of the live state, including ``progress_buf`` and ``actions`` (cut to its width).
        constants: the task's constants; each group gets clones.
        seeds: one per group.
        deferred_faults: detect non-finite results by device flags and ``poll``, as on CUDA (default: on CUDA).

    Attributes:
        alive, failures: whether each group has not failed; the faults so far, by group.
        stages: the calls and kernels of each kind of function, by name.
        components: statistics of the rewards and their components.
    """

    def __init__(
        self,
        layout: GroupLayout,
        shapings: Sequence[Shaping],
        views: Sequence[dict[str, Tensor]],
        constants: dict[str, Tensor],
        task: Task,
        seeds: Sequence[int],
        device: torch.device,
        deferred_faults: bool | None = None,
    ) -> None:
        groups, num_envs = layout.num_groups, layout.num_envs
        if not len(shapings) == len(views) == len(seeds) == groups:
            raise ValueError(f"{groups} groups, but {len(shapings)} shapings, {len(views)} views, {len(seeds)} seeds")
        self.layout, self.shapings, self.task, self.seeds = layout, list(shapings), task, list(seeds)
        self.device = torch.device(device)
        self._patch_task()
        self.alive: list[bool] = [True] * groups
        self.failures: dict[int, Fault] = {}
        self._deferred = self.device.type == "cuda" if deferred_faults is None else deferred_faults
        self._fixed = is_deterministic() and self.device.type == "cuda"

        # the buffers of all kinds of functions, and a mask of the padding in the actions
        action_dims = [s.action_dim for s in shapings]
        actions = self._zeros(num_envs, max(action_dims))
        self.stages = {"policy": Stage(POLICY, layout, self.device, {VALUE: actions}, action_dims)}
        self.stages.update({name: self._stage(kind) for name, kind in STAGES.items()})
        self._padding = torch.ones_like(actions, dtype=torch.bool)
        for group, width in enumerate(action_dims):
            self._padding[layout.slice(group), :width] = False
        self._is_terminal = torch.zeros(num_envs, dtype=torch.bool, device=self.device)
        self.components = Components(layout, [s.components for s in shapings], self.alive, self.device)

        # called functions read copies, so that they cannot write into the state
        readable_constants = own_constants(constants, self.device)
        self._copies = [
            GroupCopies(group, view, actions[layout.slice(group), : shaping.action_dim], readable_constants)
            for group, (view, shaping) in enumerate(zip(views, shapings))
        ]
        # kernels and graphs read these on the device
        self._active = torch.ones(groups, dtype=torch.uint8, device=self.device)
        self._step = torch.zeros((), dtype=torch.int64, device=self.device)
        self._step_filled = 0  # the value of _step
        self._dead = torch.zeros(groups, dtype=torch.bool, device=self.device)
        # the calls of all groups; kernels replace those that were traced
        readable = {**views[0], ACTION: actions}
        sampled = self._deferred and not self._fixed
        self._compiler = Compiler(readable, self.components, self._active, self._step, self._refuse, sampled)
        for group in range(groups):
            self._add_calls(group)
        self._compiler.compile(list(self.stages.values()))
        self._changes = {name: no_changes(groups, self.device) for name in self.stages}
        self._on_device = device_copies(self._copies, self._dead, self._step)
        self._guards: dict[str, Guard] = {}  # by stage, if its calls are in a graph

        self._graphs = cuda_graphs.GraphBuilder(self.device) if self.device.type == "cuda" else None

    # one control step

    def run(self, name: str, step: int, mask: Tensor | None = None) -> dict[str, Tensor]:
        """Run the calls of a stage; return its buffers ``(num_envs, ...)`` by part: ``VALUE``, or keys of the state.

        ``mask`` ``(num_envs,)``, here and below: on the CPU, groups with no True are not called and keep their rows.
        """
        stage = self.stages[name]
        with span(REST if name == "policy" else name), torch.no_grad():
            if step != self._step_filled:  # a launch on CUDA
                self._step.fill_(step)
                self._step_filled = step
            # a comparison of the kernels with the functions that they replace is due from time to time
            if stage.due:
                counter = self._step if self._deferred else step
                with span(COMPARISON):
                    guard = self._on_device.guard(range(self.layout.num_groups), self._changes[name])
                    guard.refresh()
                    self._compiler.verify(stage, self.alive, lambda call: self._attempt(call, counter, step))
                    guard.compare()
            # CUDA: everything in one graph, without a device sync
            if self._deferred:
                self._run_deferred(name, stage, step)
                return stage.buffers

            # CPU: the groups with an environment in the mask
            wanted = self.alive
            if mask is not None:
                wanted = [due and alive for due, alive in zip(self.layout.split(mask).any(dim=1).tolist(), wanted)]

            # kernels of all groups at once, then the calls of the others
            stage.prefill()
            if stage.launches:
                self._active.copy_(torch.tensor(wanted, dtype=torch.uint8))
                stage.launch()
            guard = self._on_device.guard((call.group for call in stage.calls), self._changes[name])
            guard.refresh()
            for call in stage.calls:
                if wanted[call.group] and self.alive[call.group]:
                    self._attempt(call, step, step)
            guard.compare()

            # faults without an exception: changed inputs, and numbers that are not finite
            if self.device.type == "cuda":
                self._fail_flagged([name])
            for group, count in stage.non_finite().items():
                self.fail(group, self._not_finite(stage, group, count, step))
        return stage.buffers

    def command(self, actions: Tensor, step: int, mask: Tensor | None = None) -> Tensor:
        """Map ``actions`` ``(num_envs, act_max)`` to commands ``(num_envs, num_dofs)``: efforts or position targets."""
        policy_actions = self.stages["policy"].buffers[VALUE]
        policy_actions.copy_(actions)
        policy_actions.masked_fill_(self._padding, 0.0)
        self.run("policy", step, mask)
        return self.run("command", step, mask)[VALUE]

    def reward(self, step: int) -> Tensor:
        """Compute rewards ``(num_envs,)``, and count them and their components."""
        reward = self.run("reward", step)[VALUE]
        self.components.count_step()
        return reward

    def terminal(self, step: int, mask: Tensor | None = None) -> Tensor:
        """Return which episodes the groups' terminal functions end: ``(num_envs,)`` bool."""
        return torch.ne(self.run("terminal", step, mask)[VALUE], 0, out=self._is_terminal)

    def initial_state(self, mask: Tensor, step: int) -> dict[str, Tensor]:
        """Compute initial states for episodes that begin where ``mask`` ``(num_envs,)`` is True.

        Returns all of ``root_states``, ``dof_pos`` and ``dof_vel`` that the task has, ``(num_envs, ...)``; tensors that
        a group does not set have the task's default (always written, so that they do not depend on the neighbours).
        """
        return self.run("initial_state", step, mask)

    def goal(self, mask: Tensor, step: int) -> dict[str, Tensor]:
        """Compute goals where ``mask`` is True: all of the task's goal keys, as ``initial_state``."""
        return self.run("goal", step, mask)

    def observation(self, step: int, mask: Tensor | None = None) -> Tensor:
        """Compute observations ``(num_envs, obs_max)``, padded with zeros."""
        return self.run("observation", step, mask)[VALUE]

    @property
    def has_fitness(self) -> bool:
        """Whether a function measures fitness instead of the task."""
        return any("fitness" in shaping.stages for shaping in self.shapings)

    def fitness(self, step: int, mask: Tensor | None = None) -> Tensor:
        """Score one control step: ``(num_envs,)``; zeros where ``has_fitness`` is False."""
        return self.run("fitness", step, mask)[VALUE]

    # once per iteration

    def poll(self) -> None:
        """Convert the device's fault flags to ``failures``; one device sync."""
        if self._deferred:
            self._fail_flagged(list(self.stages))

    def recheck(self) -> None:
        """Compare every kernel with its function again, on the state of its next run."""
        for stage in self.stages.values():
            stage.due = True

    def fail(self, group: int, fault: Fault) -> None:
        """Stop a group permanently; the first of several faults is reported."""
        if self.alive[group]:
            self.alive[group] = False
            self.failures[group] = fault
            self._dead[group].fill_(True)
            self._active[group].fill_(0)
            for stage in self.stages.values():
                stage.clear(group)

    def _refuse(self, call: Call, reason: str) -> None:
        """Stop a group whose program cannot be compiled and whose function is not available."""
        assert call.function is not None
        function = call.function
        message = f"cannot be compiled: {reason}"
        self.fail(call.group, Fault(message, function.file, function.line, function.type))

    def get_state(self) -> dict[str, Any]:
        """Return the state that ``set_state`` restores."""
        self.poll()
        return {
            "failures": {group: fault.data for group, fault in self.failures.items()},
            "components": self.components.get_state(),
            "stages": {name: (stage.due, stage.checks, list(stage.taken_back)) for name, stage in self.stages.items()},
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore what ``get_state`` returned."""
        for group, value in state["failures"].items():
            fault = read_fault(value)
            assert fault is not None
            self.fail(group, fault)
        self.components.set_state(state["components"])
        for name, (due, checks, taken_back) in state["stages"].items():
            stage = self.stages[name]
            self._compiler.take_back(stage, taken_back)
            stage.due, stage.checks = due, checks

    def split_state(self, state: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return a state for each group, as that of a dispatcher of this group alone."""
        parts = []
        for group, components in enumerate(self.components.split_state(state["components"])):
            failures = {0: state["failures"][group]} if group in state["failures"] else {}
            stages = {
                name: (due, checks, [0] * (group in taken_back))
                for name, (due, checks, taken_back) in state["stages"].items()
            }
            parts.append({"failures": failures, "components": components, "stages": stages})
        return parts

    def join_states(self, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Join the states of the groups, in their order; the reverse of ``split_state``."""
        stages = {}
        for name in self.stages:
            states = [part["stages"][name] for part in parts]
            taken_back = [group for group, (_, _, taken) in enumerate(states) if taken]
            stages[name] = any(due for due, _, _ in states), max(checks for _, checks, _ in states), taken_back
        return {
            "failures": {group: part["failures"][0] for group, part in enumerate(parts) if part["failures"]},
            "components": self.components.join_states([part["components"] for part in parts]),
            "stages": stages,
        }

    # running a stage

    def _run_deferred(self, name: str, stage: Stage, step: int) -> None:
        """Run a stage without a device sync."""
        # the first run captures the graph
        stage.prefill()
        if stage.replay is None:
            guard = self._on_device.guard((call.group for call in stage.calls), self._changes[name])
            self._guards[name] = guard
            counts = self.components.counts.clone()  # warm-up calls are not steps
            guard.refresh()
            with self._torch():
                stage.eager, stage.replay = self._build(stage, guard, step)
            self.components.counts.copy_(counts)
            stage.prefill()

        # calls that cannot be captured run before the graph
        replay = stage.replay
        if stage.eager:
            self._guards[name].refresh()  # without eager calls, the graph refreshes
        for call in stage.eager:
            if self.alive[call.group]:
                self._attempt(call, step, step)
        replay()

    def _torch(self) -> AbstractContextManager[None]:
        """Return a context for calls of functions."""
        return deterministic_torch() if self._fixed else _PLAIN

    def _build(self, stage: Stage, guard: Guard, step: int) -> tuple[list[Call], Callable[[], None]]:
        """Return the calls that must run eagerly, and a function that replays the others and the guards."""

        def after() -> None:
            guard.compare()
            stage.guard(self._dead, self._step)

        def run() -> None:
            stage.launch()
            after()

        if self._graphs is None:
            return list(stage.calls), run
        built = self._graphs.build(
            stage.calls,
            stage.launches,
            lambda call: self._attempt(call, self._step, step),
            guard.refresh,
            after,
            self._step,
        )
        for call in stage.calls:  # a capture calls them once more
            if self.alive[call.group]:
                self._check_inputs(call, step)
        return built

    def _attempt(self, call: Call, counter: noise.Counter, step: int) -> bool:
        """Make one call with the random numbers of ``counter``; a fault in it stops its group."""
        self._copies[call.group].refresh()
        try:
            with self._torch():
                call(counter)
        except FAULTS as error:
            if call.function is None:
                raise  # the task's own drives, not the candidate
            self.fail(call.group, from_exception(error, call.function, step=step).fault)
        else:
            self._check_inputs(call, step)
        return self.alive[call.group]

    def _check_inputs(self, call: Call, step: int) -> None:
        """Stop the group of a call that changed its inputs, as far as they are on the CPU."""
        if call.function is not None:
            changed = call.inputs.moved() or self._copies[call.group].changed()
            if changed is not None:
                self.fail(call.group, from_exception(Mutation(in_place(changed)), call.function, step=step).fault)

    def _fail_flagged(self, names: Sequence[str]) -> None:
        """Stop the groups with a flag on the device for one of these stages; one device sync."""
        stages, changes = [self.stages[name] for name in names], [self._changes[name] for name in names]
        # all flags in one transfer: where numbers were not finite, and where inputs changed
        rows = [x for stage in stages for x in (stage.fault_step, stage.fault_count)]
        rows += [x for marks in changes for x in (marks.step, marks.key.long())]
        flags = torch.stack(rows).tolist()
        not_finite, changed = flags[: 2 * len(names)], flags[2 * len(names) :]

        # each group's first fault
        for group in range(self.layout.num_groups):
            faults = [(changed[2 * i][group], i, True) for i in range(len(names))]
            faults += [(not_finite[2 * i][group], i, False) for i in range(len(names))]
            faults = [fault for fault in faults if fault[0] >= 0]
            if not faults or not self.alive[group]:
                continue
            step, i, is_change = min(faults)
            call = stages[i].call(group)
            if is_change:
                message = in_place(self._copies[group].names[changed[2 * i + 1][group]]) + at_step(step)
                # the task's own drives have no function
                fault = Fault(message, self.shapings[group].file, kind="changed input", remedy=Mutation.REMEDY)
                if call is not None and (function := call.function) is not None:
                    fault = replace(fault, file=function.file, line=function.line, function=function.type)
                self.fail(group, fault)
            else:
                self.fail(group, self._not_finite(stages[i], group, not_finite[2 * i + 1][group], step))

    def _not_finite(self, stage: Stage, group: int, count: int, step: int) -> Fault:
        total = stage.widths[group] * self.layout.envs_per_group
        call = stage.call(group)
        if call is not None and (function := call.function) is not None:
            line = self._returned_at(call, step) if call not in stage.eager else return_line(function)
            message = f"{outputs.not_finite(count, total)}{at_step(step)}"
            return Fault(message, function.file, line, function.type, "not finite")
        remedy = "its training diverged, are rewards or observations too large?" if stage.name == POLICY else ""
        message = f"{stage.name} held NaN or infinity in {count} of {total} values{at_step(step)}"
        return Fault(message, self.shapings[group].file, kind="not finite", remedy=remedy)

    def _returned_at(self, call: Call, step: int) -> int:
        """Return the line of the return statement that ran, by one more call.

        A captured function may run on a later state than that of ``step``, but its branches cannot depend on the state.
        """
        assert call.function is not None
        self._copies[call.group].refresh()
        with noting_returns(call.function) as lines, suppress(*FAULTS), self._torch():
            call(step)
        return lines[0] if lines else return_line(call.function)

    # construction

    def _patch_task(self) -> None:
        """Give the task the groups' patches, if it takes any."""
        for shaping in self.shapings:
            for stage, value in shaping.stages.items():
                if isinstance(value, Patch) and stage not in self.task.patched_stages:
                    raise ValueError(f"{value.file}:{value.line}: {self.task.name} takes no dicts for its {stage}")
        if self.task.patched_stages:
            self.task.patch([sections_of(shaping.stages) for shaping in self.shapings])

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(*shape, device=self.device)

    def _stage(self, kind: Kind) -> Stage:
        """Create the stage of a kind, without calls."""
        layout = self.layout
        if kind.rest is not None:
            live = kind.rest(self.task)
            buffers = {key: x.clone(memory_format=torch.contiguous_format) for key, x in live.items()}
            widths = [sum(x[0].numel() for x in live.values())] * layout.num_groups
            return Stage(kind.noun, layout, self.device, buffers, widths, live)
        shape = kind.parts(self.task)[VALUE].shape
        widths = [math.prod(shape)] * layout.num_groups
        if shape == (ANY,):
            widths = [shaping.widths.get(kind.stage, 1) for shaping in self.shapings]
            shape = (max(widths),)
        buffers = {VALUE: self._zeros(layout.num_envs, *shape)}
        return Stage(kind.noun, layout, self.device, buffers, widths, counts=kind.components, finite=kind.finite)

    def _add_calls(self, group: int) -> None:
        shaping, copies, functions = self.shapings[group], self._copies[group], self.shapings[group].functions
        for name, kind in STAGES.items():
            stage, function = self.stages[name], functions.get(name)
            rows = stage.rows(group)
            if kind.shape is not None and kind.shape(self.task) == (ANY,):
                rows = {VALUE: rows[VALUE][:, : stage.widths[group]]}
            store = into(kind, rows, self.components.rows(group) if kind.components else None)
            # without a function, the task's default is called, if the stage has one
            if function is None and not kind.default:
                continue
            inputs = copies.inputs()
            if function is not None:
                invoke = bind(function, inputs.state, inputs.action if kind.acts else None)
            else:
                invoke = partial(getattr(self.task, kind.default), inputs.action, inputs.state)
            seed = 0 if function is None else self.seeds[group]
            call = Call(group, function, inputs, invoke, store, seed, kind.purpose, self.device)
            # a kernel for many candidates, or a call from Python
            program = shaping.programs.get(name)
            if program is not None and self._compiler.can_compile(program):
                stage.traced.append((call, program))
            else:
                stage.calls.append(call)
