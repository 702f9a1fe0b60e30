"""Measure training against the bare physics of the same environments, in one run.

    python scripts/benchmark.py training --candidates 16 --envs 64              env-steps/s, as a ratio to physics alone
    python scripts/benchmark.py human --envs 4096 --seconds 60                  the human baseline's fitness over time

``training`` makes its candidates: no two files alike, each with its own reward, observation, action and terminal
function, every fourth with an initial state and a goal.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from typing import Any, List

import torch
from rl_games.common.algo_observer import AlgoObserver
from tqdm import tqdm

from envcoder_bench.config import compose_config
from envcoder_bench.env.evaluation import run_episodes
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.groups import GroupLayout
from envcoder_bench.noise import EVALUATION_STEP
from envcoder_bench.preparation import baseline_sources, build_task, prepare
from envcoder_bench.run_folder import CandidateSource
from envcoder_bench.sim import pick_simulator
from envcoder_bench.training import make_agent

REWARD = """
def compute_reward(state_dict):
    root = state_dict["root_states"]
    velocity = quat_rotate_inverse(root[:, 3:7], root[:, 7:10])
    spin = quat_rotate_inverse(root[:, 3:7], root[:, 10:13])
    commands = state_dict["commands"]
    error = torch.sum(torch.square(commands[:, :2] - velocity[:, :2]), dim=1)
    tracking = {a} * torch.exp(-error / {width})
    turning = {b} * torch.exp(-torch.square(commands[:, 2] - spin[:, 2]) / {width})
    effort = -{c}e-5 * torch.sum(torch.square(state_dict["torques"]), dim=1)
    {extra}
    return torch.clip(tracking + turning + effort + extra, 0.0, None), {{"tracking": tracking, "effort": effort}}
"""
EXTRAS = (
    "extra = -{c} * torch.square(velocity[:, 2])",
    "extra = -{b} * torch.sum(torch.abs(spin[:, :2]), dim=1)",
    'extra = -{c}e-3 * torch.sum(torch.square(state_dict["dof_pos"] - state_dict["default_dof_pos"]), dim=1)',
)
OBSERVATION = """
def compute_observation(state_dict):
    root = state_dict["root_states"]
    parts = [
        quat_rotate_inverse(root[:, 3:7], root[:, 7:10]) * {a},
        quat_rotate_inverse(root[:, 3:7], root[:, 10:13]) * {b},
        quat_rotate_inverse(root[:, 3:7], state_dict["gravity_vec"]),
        state_dict["commands"],
        state_dict["dof_pos"] - state_dict["default_dof_pos"],
        state_dict["dof_vel"] * 0.0{c},
        {last}
    ]
    return torch.cat(parts, dim=-1)
"""
ACTIONS = (
    """
def compute_dof_target(action, state_dict):
    return 0.{c} * action + state_dict["default_dof_pos"]
""",
    """
def compute_torque(action, state_dict):
    target = 0.{c} * action + state_dict["default_dof_pos"]
    return {kp} * (target - state_dict["dof_pos"]) - 2.{c} * state_dict["dof_vel"]
""",
)
TERMINAL = """
def compute_terminal(state_dict):
    contact = torch.norm(state_dict["contact_forces"], dim=2)
    return (contact[:, 0] > {c}.0) | torch.any(contact[:, state_dict["knee_indices"]] > {c}.0, dim=1)
"""
START = """
def compute_initial_state(state_dict):
    d = state_dict["default_dof_pos"]
    spread = torch_rand_float(0.{c}, 1.{c}, (d.shape[0], d.shape[1]), d.device)
    return {{"dof_pos": d * spread, "dof_vel": torch.zeros_like(d)}}

def compute_goal(state_dict):
    c = state_dict["commands"]
    return {{"commands": torch_rand_float(-1.{c}, 1.{c}, (c.shape[0], 3), c.device)}}
"""


def make_candidates(count: int) -> List[CandidateSource]:
    """``count`` ANYmal candidates, no two alike in constants, a third each with another reward term."""
    made = []
    for k in range(count):
        numbers = {"a": 1.0 + k / 1000, "b": 0.5 + k / 1000, "c": 1 + k % 8, "width": 0.25 + k / 2000, "kp": 80 + k % 9}
        extra = EXTRAS[k % len(EXTRAS)].format(**numbers)
        last = 'state_dict["actions"],' if k % 2 else 'state_dict["actions"], state_dict["torques"] * 0.01,'
        text = "from isaacgymenvs.utils.torch_jit_utils import quat_rotate_inverse, torch_rand_float\n"
        text += REWARD.format(**numbers, extra=extra) + OBSERVATION.format(**numbers, last=last)
        text += ACTIONS[k % 2].format(**numbers) + TERMINAL.format(**numbers)
        if k % 4 == 0:
            text += START.format(**numbers)
        made.append(CandidateSource(f"bench_{k:04d}", f"bench_{k:04d}.py", text))
    return made


def _config(args: argparse.Namespace, **values: Any) -> Any:
    cfg = compose_config("Anymal", [f"{key}={value}" for key, value in values.items()] + args.overrides)
    cfg.sim, cfg.device = pick_simulator(args.sim, args.device)
    if cfg.device == "cpu":
        torch.set_num_threads(1)
    return cfg


def _now(device: str) -> float:
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter()


def training(args: argparse.Namespace) -> None:
    cfg = _config(args, num_envs_per_candidate=args.envs, learning_iterations=args.iterations, baselines="false")
    began = time.perf_counter()
    groups, failed = prepare(cfg, make_candidates(args.candidates))
    if failed:
        sys.exit(f"benchmark candidates failed: {failed}")
    layout = GroupLayout(len(groups), args.envs)
    env = GroupedVecTask(
        build_task(cfg, layout.num_envs), layout, [g.shaping for g in groups], [g.seed for g in groups]
    )
    agent = make_agent(cfg, env, AlgoObserver())
    agent.obs = agent.env_reset()
    seconds: List[float] = []
    startup = 0.0
    for _ in tqdm(range(args.iterations + args.warmup), desc="iterations"):
        start = _now(cfg.device)
        agent.update_epoch()
        agent.train_epoch()
        seconds.append(_now(cfg.device) - start)
        startup = startup or time.perf_counter() - began
    horizon = cfg.train.params.config.horizon_length
    trained = sorted(seconds[args.warmup :])
    rate = layout.num_envs * horizon / trained[len(trained) // 2]
    physics = _physics(env, cfg.device, horizon * 2)
    env.dispatch.poll()
    if not all(env.alive):
        sys.exit(f"benchmark candidates failed: {env.failures}")
    free, total = torch.cuda.mem_get_info() if cfg.device != "cpu" else (0, 0)
    memory = f"{(total - free) / 2**30:.1f} GiB" if total else "-"
    print(f"{_machine(cfg)}; {time.strftime('%Y-%m-%d')}; python scripts/benchmark.py {' '.join(sys.argv[1:])}")
    print("| candidates x environments | training, env-steps/s | physics alone | ratio | startup | memory |")
    print("|---|---|---|---|---|---|")
    row = [f"{len(groups)} x {args.envs}", f"{rate:,.0f}", f"{physics:,.0f}", f"{rate / physics:.2f}"]
    row.append(f"{startup:.0f} s")
    print("| " + " | ".join([*row, memory]) + " |")


def _physics(env: GroupedVecTask, device: str, steps: int) -> float:
    """Env-steps/s of the same simulation alone: random commands, nothing else."""
    commands = (
        torch.randn(8, env.num_envs, env.task.num_dofs, device=env.device) * 0.3 + env.task.state["default_dof_pos"]
    )
    env.task.set_drive_mode(torch.zeros(env.num_envs, dtype=torch.bool, device=env.device))
    env.reset()
    for k in range(4):
        env.task.step(commands[k % 8])
    start = _now(device)
    for k in tqdm(range(steps), desc="bare physics"):
        env.task.step(commands[k % 8])
    return env.num_envs * steps / (_now(device) - start)


def human(args: argparse.Namespace) -> None:
    cfg = _config(args, num_envs_per_candidate=args.envs, learning_iterations=100_000, seed=args.seed)
    groups, _ = prepare(cfg, [b for b in baseline_sources("Anymal") if b.name == "human"])
    shaped, evaluation = (
        GroupedVecTask(build_task(cfg, n), GroupLayout(1, n), [shaping], [args.seed])
        for n, shaping in ((args.envs, groups[0].shaping), (256, groups[0].evaluation))
    )
    print(f"{_machine(cfg)}; {time.strftime('%Y-%m-%d')}; python scripts/benchmark.py {' '.join(sys.argv[1:])}")
    agent = make_agent(cfg, shaped, AlgoObserver())
    agent.obs = agent.env_reset()
    spent, iteration, next_report = 0.0, 0, args.seconds / 6
    while spent < args.seconds:  # time of training alone: the evaluations between are not counted
        start = _now(cfg.device)
        agent.update_epoch()
        agent.train_epoch()
        spent += _now(cfg.device) - start
        iteration += 1
        if spent >= next_report:
            next_report += args.seconds / 6
            policy = agent.deterministic_policy(evaluation.layout)
            fitness = run_episodes(evaluation, policy, 1, EVALUATION_STEP).fitness.mean()
            steps = iteration * args.envs * cfg.train.params.config.horizon_length / 1e6
            print(
                f"{spent:6.1f} s  iteration {iteration:5d}  {steps:7.1f} M env-steps  fitness {fitness:.3f}", flush=True
            )


def _machine(cfg: Any) -> str:
    if cfg.device != "cpu":
        return torch.cuda.get_device_name()
    return f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} torch thread, {cfg.sim}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for run, envs in ((training, 256), (human, 4096)):
        command = commands.add_parser(run.__name__)
        command.set_defaults(run=run)
        command.add_argument("--envs", type=int, default=envs, help="environments per candidate")
        command.add_argument("--sim", default="auto")
        command.add_argument("--device", default="auto")
        command.add_argument("overrides", nargs="*", metavar="key=value")
        if run is training:
            command.add_argument("--candidates", type=int, default=16)
            command.add_argument("--iterations", type=int, default=10)
            command.add_argument("--warmup", type=int, default=2)
        else:
            command.add_argument("--seconds", type=float, default=60.0)
            command.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
