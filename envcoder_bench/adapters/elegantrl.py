"""One candidate's environments as ElegantRL's documentation describes them for Isaac Gym."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envcoder_bench.adapters.single import CandidateLike, SingleCandidateEnv, make_single
from envcoder_bench.core.errors import UserError


class IsaacVecEnv:
    """Environments with tensors on their device, which are reset when their episode ends.

    ``Config(AgentPPO, IsaacVecEnv, env_args)`` makes them, and others for the evaluator. ElegantRL passes the values of
    ``env_args`` that are arguments of this class; ``IsaacVecEnv("Ant", num_envs=64).env_args`` has them all.

    Args:
        env_name: the task, see ``make_env``.
        num_envs, env_num: number of environments, by either name.
        gpu_id, device_id, sim_device_id, rl_device_id: number of the GPU, by any of these names, which must agree.
            Without a GPU, or with a negative number, the CPU is used.
        headless, should_print: arguments of ElegantRL's examples; nothing is rendered.
        state_dim, action_dim, if_discrete: checked, if they are given.
        candidate, seed, evaluation, shaper_types, overrides: see ``make_env``.

    Attributes:
        env_name, num_envs, env_num, max_step, state_dim, action_dim, if_discrete, target_return, device: as ElegantRL
            reads them; ``max_step`` is the number of control steps until the time-out.
        env_args: the arguments that make these environments again, with their sizes.
    """

    def __init__(
        self,
        env_name: str,
        env_num: int = -1,
        sim_device_id: int | None = None,
        rl_device_id: int | None = None,
        headless: bool = True,
        should_print: bool = False,
        num_envs: int | None = None,
        gpu_id: int | None = None,
        device_id: int | None = None,
        state_dim: int | None = None,
        action_dim: int | None = None,
        if_discrete: bool = False,
        candidate: CandidateLike = None,
        seed: int = 0,
        evaluation: bool = False,
        shaper_types: Sequence[str] | None = None,
        overrides: Sequence[str] | Mapping[str, Any] = (),
    ) -> None:
        count = num_envs if num_envs is not None else env_num if env_num > 0 else 256
        device = _device({"gpu_id": gpu_id, "device_id": device_id, "sim_device_id": sim_device_id,
                          "rl_device_id": rl_device_id})  # fmt: skip
        env = make_single(env_name, candidate, count, seed, evaluation, shaper_types, overrides, device=device)
        arguments = {"candidate": candidate, "seed": seed, "evaluation": evaluation, "shaper_types": shaper_types}
        self._begin(env, {"env_name": env_name, **arguments, "overrides": overrides})
        self._check("state_dim", state_dim, self.state_dim)
        self._check("action_dim", action_dim, self.action_dim)
        if if_discrete:
            raise UserError("if_discrete=True: actions are continuous here, set it to False")
        if should_print:
            print(self.env_args)

    @classmethod
    def of(cls, env: SingleCandidateEnv, arguments: Mapping[str, Any]) -> IsaacVecEnv:
        """Wrap existing environments; ``arguments`` would make them, and do not contain sizes."""
        wrapped = cls.__new__(cls)
        wrapped._begin(env, arguments)
        return wrapped

    def _begin(self, env: SingleCandidateEnv, arguments: Mapping[str, Any]) -> None:
        self.env = env
        self.env_name = env.task
        self.num_envs = self.env_num = env.num_envs
        self.max_step = env.max_steps
        self.state_dim, self.action_dim, self.if_discrete = env.obs_dim, env.action_dim, False
        self.target_return = 1e10
        self.device = env.device
        sizes = {name: getattr(self, name) for name in ("num_envs", "max_step", "state_dim", "action_dim")}
        self.env_args = {**arguments, **sizes, "if_discrete": False}

    def _check(self, name: str, expected: int | None, size: int) -> None:
        if expected is not None and expected != size:
            raise UserError(f"{name} of {self.env_name} with candidate {self.env.candidate} is {size}, not {expected}")

    def reset(self) -> Any:
        """Begin an episode in every environment: ``(num_envs, state_dim)``."""
        return self.env.reset()

    def step(self, action: Any) -> tuple[Any, Any, Any, dict[str, Any]]:
        """Advance one control step: state, reward, done and ``{"time_outs": (num_envs,) bool}``.

        Where an episode ended, the state is the first of the next one.
        """
        step = self.env.step(action)
        return step.obs, step.reward, step.done, {"time_outs": step.truncated}

    def close(self) -> None:
        """Do nothing; the environments are freed with the object."""


class IsaacOneEnv(IsaacVecEnv):
    """One environment with NumPy arrays and Python numbers, for evaluators; where an episode ends, call ``reset``."""

    def __init__(
        self,
        env_name: str,
        device_id: int | None = None,
        headless: bool = True,
        should_print: bool = False,
        gpu_id: int | None = None,
        state_dim: int | None = None,
        action_dim: int | None = None,
        if_discrete: bool = False,
        candidate: CandidateLike = None,
        seed: int = 0,
        evaluation: bool = False,
        shaper_types: Sequence[str] | None = None,
        overrides: Sequence[str] | Mapping[str, Any] = (),
    ) -> None:
        super().__init__(
            env_name, 1, None, None, headless, should_print, None, gpu_id, device_id, state_dim, action_dim,
            if_discrete, candidate, seed, evaluation, shaper_types, overrides,
        )  # fmt: skip

    def reset(self) -> np.ndarray:
        """Begin an episode: ``(state_dim,)``."""
        return super().reset()[0].cpu().numpy()

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, dict[str, Any]]:
        """Advance one control step with ``(action_dim,)``; where the episode ends, the state is its last."""
        step = self.env.step(torch.as_tensor(action, dtype=torch.float32).unsqueeze(0), final_obs=True)
        assert step.final_obs is not None
        state: Tensor = step.final_obs[0]
        infos = {"time_outs": bool(step.truncated[0])}
        return state.cpu().numpy(), float(step.reward[0]), bool(step.done[0]), infos


def _device(numbers: Mapping[str, int | None]) -> str:
    """Return the torch device by ElegantRL's rule: the CPU for a negative number or without CUDA."""
    ids = {name: number for name, number in numbers.items() if number is not None}
    if len(set(ids.values())) > 1:
        raise UserError(f"{', '.join(f'{name}={number}' for name, number in ids.items())}: give one device")
    number = next(iter(ids.values()), 0)
    return f"cuda:{number}" if number >= 0 and torch.cuda.is_available() else "cpu"
