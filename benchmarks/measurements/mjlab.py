"""A task of mjlab: the speed of ours, mjlab's own environment and the simulation alone, and how both learn it."""

import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from itertools import count
from typing import Any

import torch
from bench import records
from bench.records import Record
from bench.session import Session, now
from torch import Tensor
from tqdm import tqdm

from envcoder_bench.core.noise import EVALUATION_STEP
from envcoder_bench.env.evaluation import run_episodes
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.sim import pick_simulator
from envcoder_bench.sources.mjlab_tasks.source import quiet
from envcoder_bench.sources.mjlab_tasks.spec import facts_of
from envcoder_bench.sources.registry import find_spec
from envcoder_bench.tasks.base import EnvGroups

from .learning import find_sources, make_evaluation

Policy = Callable[[Tensor], Tensor]
Side = tuple[Callable[[int], Policy], list[Any]]  # trains for a number of iterations; its environments


def mjlab(args: Namespace) -> Iterator[Record]:
    """Time control steps with random actions and resets; needs mjlab."""
    from mjlab.envs import ManagerBasedRlEnv

    sim, device = pick_simulator(args.sim, args.device)
    spec, n = find_spec(f"mjlab:{args.task}"), args.envs
    task = spec.make({"name": spec.name, "sim": {"backend": "auto"}}, n, sim, device)
    groups = replace(EnvGroups.alone(n, torch.zeros(n, task.num_dofs, device=device)), keys=frozenset())
    task.attach(groups)
    task.step_count = 0
    task.prepare_reset(torch.ones(n, dtype=torch.bool, device=device))
    task.settle()
    config = facts_of(f"mjlab:{args.task}").source.env_cfg()
    config.scene.num_envs = n
    with quiet():
        theirs = ManagerBasedRlEnv(config, device=device)
    theirs.reset()

    def step() -> None:
        groups.actions.normal_().mul_(0.3)
        task.step_count += 1
        task.step(groups.actions)
        ended = task.state["reset_buf"] | task.timed_out
        if device != "cpu" or bool(ended.any()):  # a run does the same
            task.prepare_reset(ended)
        task.settle()

    def physics() -> None:
        for _ in range(task.substeps):
            task.world.sim.step()

    ways: dict[str, Callable[[], object]] = {
        "ours": step,
        "mjlab": lambda: theirs.step(0.3 * torch.randn(n, task.num_dofs, device=device)),
        "physics": physics,
    }
    speeds = {name: [] for name in ways}
    for _ in range(args.rounds + 1):  # the first one warms up
        for name, way in ways.items():
            began = now(device)
            for _ in range(args.steps):
                way()
            speeds[name].append(n * args.steps / (now(device) - began))
    medians = {name: sorted(values[1:])[args.rounds // 2] for name, values in speeds.items()}
    yield {"kind": "mjlab", "task": args.task, "envs": n, **medians, **records.describe(device)}


def mjlab_learning(args: Namespace) -> Iterator[Record]:
    """Train a task's registered settings with ours and with mjlab's runner, as ``--sides`` says: a record of each.

    The same evaluation scores both, with deterministic actions; rewards are means over the steps of training.
    ``seed=N`` begins at another seed, so that several processes can train the seeds of a side.
    """
    for side in args.sides:
        yield _learning(args, side)


def _learning(args: Namespace, side: str) -> Record:
    task = Namespace(**{**vars(args), "task": f"mjlab:{args.task}"})
    began = time.monotonic()
    session = Session.build(task, find_sources(task.task, ["human"]), args.envs, seeds=args.seeds)
    evaluation = make_evaluation(session.spec, session.groups, args.episodes)
    train, envs = (_ours if side == "ours" else _mjlab)(args, session, evaluation)
    rewards = [_rewards_of(env, args.seeds // len(envs)) for env in envs]
    chunk = args.iterations // args.points
    curves = {what: [] for what in ("env_steps", "reward", "fitness", "seconds")}
    for point in tqdm(range(1, args.points + 1), desc=f"points of {side}", leave=False, disable=None):
        start = now(session.cfg.device)
        policy = train(chunk)
        curves["seconds"].append(now(session.cfg.device) - start)
        curves["env_steps"].append(point * chunk * args.envs * session.trainer.horizon)
        curves["reward"].append([x for rows in rewards for x in torch.stack(rows).mean(dim=0).tolist()])
        for rows in rewards:
            rows.clear()
        with torch.no_grad():
            fitness = run_episodes(evaluation, policy, 1, EVALUATION_STEP).fitness.mean(dim=1)
        curves["fitness"].append(fitness.tolist())
        session.check()
        if args.seconds and time.monotonic() - began > args.seconds * point / (point + 1):  # the next one would be late
            break
    size = {"task": args.task, "side": side, "envs": args.envs, "seeds": args.seeds, "episodes": args.episodes}
    return {"kind": "mjlab_learning", **size, **curves, **records.describe(session.cfg.device)}


def _ours(args: Namespace, session: Session, evaluation: GroupedVecTask) -> Side:
    def train(iterations: int) -> Policy:
        for _ in range(iterations):
            session.iterate()
        return session.trainer.policy(evaluation.layout)

    return train, [session.env]


def _mjlab(args: Namespace, session: Session, evaluation: GroupedVecTask) -> Side:
    from tensordict import TensorDict

    device, width, first = session.cfg.device, session.env.obs_dims[0], count()
    with quiet():
        runners = [_runner(args.task, args.envs, group.seed, device) for group in session.groups]

    def train(iterations: int) -> Policy:
        is_first = next(first) == 0
        with quiet(), torch.enable_grad():
            for runner in runners:
                runner.learn(iterations, init_at_random_ep_len=is_first)
        actors = [runner.get_inference_policy(device) for runner in runners]
        return lambda obs: torch.cat(
            [
                actor(TensorDict({"actor": x[:, :width]}, [len(x)]))
                for actor, x in zip(actors, evaluation.layout.split(obs))
            ]
        )

    return train, [runner.env for runner in runners]


def _runner(task: str, num_envs: int, seed: int, device: str) -> Any:
    """Return mjlab's runner, as its ``scripts/train.py`` constructs it, without logs."""
    from mjlab.envs import ManagerBasedRlEnv
    from mjlab.rl import MjlabOnPolicyRunner, RslRlVecEnvWrapper
    from mjlab.tasks.registry import load_env_cfg, load_rl_cfg, load_runner_cls

    config, settings = load_env_cfg(task), load_rl_cfg(task)
    config.scene.num_envs, config.seed, settings.seed = num_envs, seed, seed
    env = RslRlVecEnvWrapper(ManagerBasedRlEnv(config, device=device), clip_actions=settings.clip_actions)
    return (load_runner_cls(task) or MjlabOnPolicyRunner)(env, asdict(settings), None, device)


def _rewards_of(env: Any, groups: int) -> list[Tensor]:
    """Return a list to which each later step of an environment appends the mean reward of its groups."""
    rows, step = [], env.step

    def counted(*args: Any) -> Any:
        result = step(*args)
        reward = result.reward if hasattr(result, "reward") else result[1]
        rows.append(reward.view(groups, -1).mean(dim=1))
        return result

    env.step = counted
    return rows
