"""A small task without physics engine, candidates from strings, and groups of them."""

from collections.abc import Sequence
from dataclasses import replace
from textwrap import dedent
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.compile.trace import Memo, Untraced, trace
from envcoder_bench.compile.values import RULES
from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.env.dispatch import Dispatcher
from envcoder_bench.shaping.checking import check
from envcoder_bench.shaping.contract import Candidate, Shaping, assemble
from envcoder_bench.shaping.loading import load_candidate
from envcoder_bench.tasks.base import Field, Task

NUM_DOFS = 3

BASELINE = """
def compute_reward(state_dict):
    return -state_dict["dof_pos"].square().sum(dim=-1)

def compute_observation(state_dict):
    return torch.cat((state_dict["dof_pos"], state_dict["dof_vel"]), dim=-1)

def compute_terminal(state_dict):
    return state_dict["root_states"][:, 2] < 0.0
"""

# transcendental functions, whose bits depend on where a number lies in a tensor, and every kind of function
RICH = """
from isaacgym.torch_utils import quat_rotate_inverse, torch_rand_float
ACTION_DIM = {width}

def compute_reward(state_dict, actions, dof_vel_scale):
    upright = torch.sigmoid(state_dict["dof_pos"]).pow(1.7).sum(dim=-1) * dof_vel_scale
    feet = state_dict["contact_forces"][:, state_dict["feet_indices"], 2].sum(dim=-1)
    spin = quat_rotate_inverse(state_dict["root_states"][:, 3:7], state_dict["root_states"][:, 7:10])[:, 2]
    total = upright - {scale} * actions.square().sum(dim=-1) + 0.1 * spin
    return total, {{"upright": upright, "feet": feet, "up": spin > 0}}

def compute_observation(state_dict, actions):
    noise = torch_rand_float(-1.0, 1.0, (actions.shape[0], 2), str(actions.device))
    return torch.cat((torch.tanh(state_dict["dof_pos"]), torch.atan2(actions, actions + 0.1), noise), dim=-1)

def compute_{action}(action, dof_vel):
    return torch.nn.functional.softplus(action[:, :1] - dof_vel) + {scale} * action.sum(dim=-1, keepdim=True)

def compute_initial_state(dof_pos):
    return {{"dof_pos": 0.1 * torch_rand_float(-1.0, 1.0, (dof_pos.shape[0], 3), str(dof_pos.device))}}

def compute_goal(commands):
    return {{"commands": commands * 0.5 + torch_rand_float(-1.0, 1.0, (commands.shape[0], 3), str(commands.device))}}

def compute_done(dof_pos):
    return (dof_pos.abs() > {scale} + 0.4).any(dim=-1)
"""
NARROW = RICH.format(width=2, scale=0.1, action="torque")
WIDE = RICH.format(width=5, scale=0.3, action="dof_target")
OTHER = RICH.format(width=4, scale=0.7, action="torque")
PLAIN = "def compute_reward(dof_pos):\n    return dof_pos.exp().sum(dim=-1)\n"


class FakeTask(Task):
    """Three joints that follow the command, and a root that moves with them: every state key is finite and smooth."""

    name = "Fake"
    num_dofs, dt, max_episode_length = NUM_DOFS, 0.02, 50
    goal_keys = ("commands",)
    fitness_meaning = "none"
    clip_actions = clip_observations = 5.0

    def __init__(
        self, num_envs: int, device: str = "cpu", default_action_dim: int | None = NUM_DOFS, n: int | None = None
    ) -> None:
        self.num_envs, self.device, self.default_action_dim = num_envs, torch.device(device), default_action_dim
        lanes = torch.arange(num_envs, dtype=torch.float32).unsqueeze(1) % (n or num_envs)  # groups begin alike
        self.state: dict[str, Tensor] = {
            "root_states": torch.fmod(lanes * 0.31 + torch.arange(13) * 0.17, 1.0),
            "dof_pos": torch.fmod(lanes * 0.71 + torch.arange(NUM_DOFS) * 0.37, 1.0) - 0.5,
            "dof_vel": torch.fmod(lanes * 0.53 + torch.arange(NUM_DOFS) * 0.41, 1.0) - 0.5,
            "commands": torch.fmod(lanes * 0.91 + torch.arange(3) * 0.13, 1.0),
            "contact_forces": torch.ones(num_envs, 4, 3),
        }
        self.state = {key: x.to(self.device) for key, x in self.state.items()}
        self.constants: dict[str, Tensor] = {"dof_vel_scale": torch.tensor(0.05), "feet_indices": torch.tensor([1, 3])}
        self.default_state = {key: self.state[key] for key in ("root_states", "dof_pos", "dof_vel")}
        self.fields: dict[str, Field] = {}
        self.unstable = torch.zeros(num_envs, dtype=torch.bool, device=self.device)

    @property
    def bytes_per_env(self) -> int:
        return 0

    def set_drive_mode(self, effort: Tensor) -> None:
        self.effort = effort

    def default_dof_target(self, action: Tensor, state: dict[str, Tensor]) -> Tensor:
        return 0.5 * action + torch.tanh(state["dof_pos"])

    def step(self, command: Tensor) -> None:
        self.state["dof_vel"].mul_(0.9).add_(0.1 * command)
        self.state["dof_pos"].add_(0.1 * self.state["dof_vel"])
        self.state["root_states"][:, :3].add_(0.01 * self.state["dof_vel"])

    def reset(self, mask: Tensor, initial: dict[str, Tensor], goal: dict[str, Tensor]) -> None:
        for key, x in {**initial, **goal}.items():
            self.state[key].copy_(torch.where(mask.view(-1, *[1] * (x.dim() - 1)), x, self.state[key]))

    def fitness(self, state: dict[str, Tensor]) -> Tensor:
        return torch.zeros(self.num_envs)

    def get_state(self) -> dict[str, Tensor]:
        return {key: x.cpu().clone() for key, x in self.state.items()}

    def set_state(self, state: dict[str, Tensor]) -> None:
        for key, x in state.items():
            self.state[key].copy_(x)


def load(code: str, name: str = "mine", file: str | None = None, seed: int = 0) -> Candidate:
    return load_candidate(name, dedent(code), file or f"{name}.py", seed)


def shaping(code: str, name: str = "mine", task: Task | None = None, n: int = 4) -> Shaping:
    """A checked shaping: the candidate over BASELINE. The functions have run, as after a caller's own check."""
    task = task or FakeTask(n)
    probe = {key: x[:n] for key, x in task.state.items()}
    return check(assemble(load(code, name), load(BASELINE, "human")), probe, task.constants, task)


_shapings: dict[tuple[object, ...], Shaping] = {}
_memos: dict[tuple[object, ...], Memo] = {}


def _shared_shaping(code: str, name: str, task: Task, n: int) -> Shaping:
    """Return a checked shaping, the same for all groups of a process if its functions keep nothing between calls."""
    key = (code, name, n, task.device)
    made = _shapings.get(key) or shaping(code, name, task, n)
    if all(function.stateful_line is None for function in made.functions.values()):
        _shapings[key] = made
    return made


class Groups:
    """Groups of candidates on a fake task, stepped as the environment does; ``compiled`` ones are traced first."""

    def __init__(
        self,
        codes: Sequence[str],
        n: int = 4,
        seeds: Sequence[int] | None = None,
        device: str = "cpu",
        names: Sequence[str] | None = None,
        compiled: bool | Sequence[bool] = False,
        **dispatcher: Any,
    ) -> None:
        self.layout = GroupLayout(len(codes), n)
        self.task = FakeTask(self.layout.num_envs, device, n=n)
        names = names or [f"c{i}" for i in range(len(codes))]
        self.shapings = [_shared_shaping(code, name, self.task, n) for code, name in zip(codes, names)]
        self.refused: list[Untraced] = []
        chosen = [compiled] * len(codes) if isinstance(compiled, bool) else compiled
        probe = {key: x[:n] for key, x in self.task.state.items()}
        memo = _memos.setdefault((n, self.task.device, *RULES.values()), Memo())  # another one if a test patches a rule
        for g in (g for g, own in enumerate(chosen) if own):
            traced, refused = trace(self.shapings[g], probe, self.task.constants, self.task, memo)
            # no kernel has been compared with these copies
            programs = {stage: replace(program, verified=set()) for stage, program in traced.programs.items()}
            self.shapings[g] = replace(traced, programs=programs)
            self.refused += refused
        width = max(s.action_dim for s in self.shapings)
        self.actions = torch.zeros(self.layout.num_envs, width, device=device)
        self.progress_buf = torch.zeros(self.layout.num_envs, dtype=torch.int64, device=device)
        self.seeds = seeds or [0] * len(codes)
        self.renew(**dispatcher)

    def renew(self, **dispatcher: Any) -> None:
        """Make a new dispatcher for the shapings as they are now."""
        views = self.layout.views({**self.task.state, "progress_buf": self.progress_buf})
        for g, own in enumerate(self.shapings):
            views[g]["actions"] = self.actions[self.layout.slice(g), : own.action_dim]
        task = self.task
        self.dispatch = Dispatcher(
            self.layout, self.shapings, views, task.constants, task, self.seeds, task.device, **dispatcher
        )

    def step(self, t: int) -> dict[str, Tensor]:
        """One control step with actions that depend on the lane alone; what every function gave, copied."""
        lanes = torch.arange(self.layout.num_envs, device=self.task.device) % self.layout.envs_per_group
        columns = torch.arange(self.actions.shape[1], device=self.task.device)
        self.actions.copy_(torch.fmod(lanes.unsqueeze(1) * 0.37 + columns * 0.77 + 0.13 * t, 1.0) - 0.5)
        dispatch, made = self.dispatch, {}
        made["command"] = dispatch.command(self.actions, t).clone()
        self.task.step(made["command"])
        self.progress_buf += 1
        made["reward"] = dispatch.reward(t).clone()
        made["terminal"] = dispatch.terminal(t).clone()
        mask = made["terminal"] | (lanes == t % 4)
        initial = {key: x.clone() for key, x in dispatch.initial_state(mask, t).items()}
        self.task.reset(mask, initial, {})
        goal = {key: x.clone() for key, x in dispatch.goal(mask, t).items()}
        self.task.reset(mask, {}, goal)
        made["observation"] = dispatch.observation(t).clone()
        made.update({key: x.clone() for key, x in self.task.state.items()})
        return made

    def run(self, steps: int, first: int = 0) -> list[dict[str, Tensor]]:
        return [self.step(t) for t in range(first, first + steps)]

    def of(self, made: dict[str, Tensor], group: int) -> dict[str, Tensor]:
        """The part of one group, without padding."""
        own, rows = self.shapings[group], self.layout.slice(group)
        return {key: x[rows, : own.obs_dim] if key == "observation" else x[rows] for key, x in made.items()}


def same(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    """Whether two steps gave the same, to the bit."""
    return one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


def close(one: dict[str, Tensor], two: dict[str, Tensor], rtol: float = 1e-5, atol: float = 1e-6) -> None:
    assert one.keys() == two.keys()
    for key in one:
        torch.testing.assert_close(one[key], two[key], rtol=rtol, atol=atol)
