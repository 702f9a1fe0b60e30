"""Adapt a task of Isaac Gym code to the ``Task`` interface: its steps, its episodes and its fitness."""

import torch
from torch import Tensor

from envcoder_bench.core.errors import near_matches
from envcoder_bench.tasks.isaacgym_tasks import tensors
from envcoder_bench.tasks.isaacgym_tasks.fairness import tell_unequal_beginnings
from envcoder_bench.tasks.isaacgym_tasks.isaac_base import IsaacBase


class IsaacTask(IsaacBase):
    """A task of Isaac Gym code. ``spec.py`` makes a subclass for each."""

    def restart(self) -> None:
        if self._randomizer is not None:
            self._randomizer.expire()
            everyone = torch.ones(self.num_envs, dtype=torch.bool, device=self.device)
            self._resets.randomize(everyone, torch.arange(self.num_envs, device=self.device), self.step_count)
        self._checkpoint.restore(self._first)

    # domain randomization

    def randomize_actions(self, actions: Tensor, rows: slice) -> Tensor:
        return self._with_noise("actions", actions, rows)

    def randomize_observations(self, obs: Tensor, rows: slice) -> Tensor:
        return self._with_noise("observations", obs, rows)

    def _with_noise(self, which: str, x: Tensor, rows: slice) -> Tensor:
        if self._randomizer is None:
            return x
        self._randomizer.refresh(self.step_count)
        return self._randomizer.add_noise(which, x, rows, self.step_count)

    # one control step

    def default_dof_target(self, action: Tensor, state: dict[str, Tensor]) -> Tensor:
        # unused: the action goes to the task's own pre_physics_step
        return torch.zeros(action.shape[0], self.num_dofs, dtype=action.dtype, device=action.device)

    def step(self, command: Tensor) -> None:
        self._gym.command = command if self._commanded else None
        width = min(self.default_action_dim or 0, self._groups.actions.shape[1])
        actions = torch.zeros(self.num_envs, self.default_action_dim or 0, device=self.device)
        actions[:, :width] = self._groups.actions[:, :width] * self._own_actions
        self._scoring.note_solved()
        self._gym.blown.zero_()  # type: ignore[union-attr]
        self._draws.begin_step(self.step_count)
        with self.source.errors_of_code(), self.scene.own_properties.watched():
            self.driver.act(actions)
            ends = self.driver.judge(self._progress)
        self._progress += 1
        self._sync()
        self.state["reset_buf"].copy_(ends)
        torch.logical_or(self._gym.blown, self._not_finite(), out=self.unstable)  # type: ignore[arg-type]

    def _not_finite(self) -> Tensor:
        rows = [self.state[key] for key in ("root_states", "dof_pos", "dof_vel") if key in self.state]
        return ~torch.isfinite(torch.cat([self.isaac.rew_buf.unsqueeze(1), *rows], dim=1)).all(dim=1)

    # episodes

    def prepare_reset(self, mask: Tensor) -> None:
        """Begin episodes as the task does where ``mask`` is True, and set their rows of ``default_state``."""
        env_ids = mask.nonzero().flatten()
        self._begun = mask.clone()
        if not len(env_ids):
            return
        self._resets.begin(mask, env_ids, self.step_count)
        self._progress.masked_fill_(mask, 0)
        self._sync()
        self.state["reset_buf"].masked_fill_(mask, 0)
        self._scoring.forget(mask)
        tensors.copy_all(list(self.default_state.values()), [self.state[key] for key in self.default_state])
        if not self._compared and len(env_ids) == self.num_envs:
            self._compared = True
            own = {key: self.state[key] for key in ("commands", "obs_buf", *self.scene.keys) if key in self.state}
            tell_unequal_beginnings(self.source.address, own, self._groups.seeds, self._groups.lanes)

    def reset(self, mask: Tensor, initial: dict[str, Tensor], goal: dict[str, Tensor]) -> None:
        if initial:
            if self._begun is None:
                self.prepare_reset(mask)
            self._begun = None
            own = mask & self._groups.initial_states
            states = {**self.default_state, **initial}
            if self._begins and self._resets.overwrite("initial", own, lambda: self.scene.write(own, states)):
                self._sync()
        if goal:
            for key in goal:
                if key not in self.goal_keys:
                    raise ValueError(f"{self.name} has no goal '{key}'{near_matches(key, self.goal_keys)}")
            own = mask & self._groups.goals
            if self._aims and self._resets.overwrite("goal", own, lambda: self._write_goals(own, goal)):
                self._sync()

    def _write_goals(self, mask: Tensor, goal: dict[str, Tensor]) -> None:
        """Set goals where ``mask`` is True."""
        for key, value in goal.items():
            buffer = self._mirror.row(self.keys[key])
            assert buffer is not None
            buffer.copy_(torch.where(mask.view(-1, *[1] * (buffer.dim() - 1)), value, buffer))

    # fitness

    def fitness(self, state: dict[str, Tensor]) -> Tensor:
        return self._scoring.fitness(state)
