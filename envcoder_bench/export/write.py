"""Export of a policy from a run folder: the files, checked against the policy that was trained."""

import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envcoder_bench.core.bounded import parse_json
from envcoder_bench.core.errors import UserError, near_matches, user_input
from envcoder_bench.core.files import file_digest, write_atomic
from envcoder_bench.core.noise import normal
from envcoder_bench.core.purposes import Purpose
from envcoder_bench.core.torch_settings import ALONE
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.export.deploy import HEADER, deploy_yaml
from envcoder_bench.export.describe import as_text, describe, metadata, observes_terms
from envcoder_bench.export.module import COMMAND, ExportedPolicy, affine_command
from envcoder_bench.export.onnx_file import onnx_bytes, onnx_runner
from envcoder_bench.run.folder.policies import OpenedRun, Policy, load_policy, open_run
from envcoder_bench.run.prepare.environments import build_env
from envcoder_bench.run.prepare.groups import prepare_one
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.sim import pick_simulator
from envcoder_bench.tasks.base import BASELINES
from envcoder_bench.tasks.contract import TaskContract
from envcoder_bench.tasks.sim_task import control_timing, engine_options
from envcoder_bench.tasks.spec import Can

FORMATS = {"onnx": ".onnx", "torchscript": ".pt"}
# largest difference to the policy's actions, relative to the largest action of an observation where that is above 1
TOLERANCE = 1e-5
_NUM_ENVS, _STEPS = 16, 12  # size of a short rollout that gives states and observations

Run = Callable[[np.ndarray], Sequence[Any]]


@dataclass(frozen=True)
class Exported:
    """The files of an exported policy.

    Attributes:
        policy, description: the policy's file and its JSON.
        model: the robot's MJCF; None for a task that is not a MuJoCo model.
        command: whether the policy's file also has the drives' commands.
        difference: the largest difference of an action to the policy of the run.
        assets: the folder of the model's meshes, textures and height fields; None if it has none.
        deploy: ``deploy.yaml`` for the runtime of Unitree's robots; None if the policy is not one that it can run.
    """

    policy: Path
    description: Path
    model: Path | None
    command: bool
    difference: float
    assets: Path | None = None
    deploy: Path | None = None


def export_policy(
    folder: str | Path,
    candidate: str | None = None,
    seed: int | None = None,
    format: str = "onnx",
    output: str | Path | None = None,
) -> Exported:
    """Write a policy of a run as ``policy.onnx`` or ``policy.pt``, with ``policy.json`` and ``model.xml`` beside it.

    Args:
        folder: the run folder.
        candidate: a candidate's or baseline's name; None for the best candidate.
        seed: one of the run's seeds, for ``policy_seed_<seed>``; None for the candidate's best seed.
        format: ``onnx`` or ``torchscript``.
        output: the folder for the files; None for the candidate's folder in the run.

    Raises:
        UserError: bad input, or a missing package; nothing was written.
    """
    if format not in FORMATS:
        raise UserError(f"unknown format '{format}'{near_matches(format, FORMATS)}; there are {', '.join(FORMATS)}")
    if output is not None and Path(output).is_file():
        raise UserError(f"--output {output} is a file: give a folder")
    run = open_run(folder)
    candidate = candidate or run.best()
    policy = load_policy(run, candidate, seed)
    env, exported, description, obs = _build(run, policy)
    title = f"{description['task']}, candidate {candidate}, seed {policy.seed}; see the JSON file beside this one"
    deployment = _deployment(env, description)
    content, runner = _pack(exported, format, policy.obs_dim, title, metadata(description, deployment))
    # the content is compared with the policy before it is written
    difference = _difference(runner, policy, env, obs)
    if not difference <= TOLERANCE:  # NaN is no equality
        raise RuntimeError(f"the {format} file's actions differ by {difference:.3g} from those of {policy.file}")

    target = run.folder.candidate(candidate) if output is None else Path(output)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--output {target} cannot be written: {error.strerror}") from error
    stem = "policy" if seed is None else f"policy_seed_{seed}"
    file, about = target / f"{stem}{FORMATS[format]}", target / f"{stem}.json"
    robot = run.spec.task.model_path
    model = None if robot is None else target / "model.xml"
    assets = [] if robot is None or model is None else _write_model(run.spec, env, robot, model)
    digest = file_digest(policy.file)
    # the description also names the files of earlier exports of the same policy
    files = {**_earlier_files(about, digest), format: file.name, "model": None if model is None else model.name}
    if assets:
        files["assets"] = assets
    deploy = _write_deploy(deploy_yaml(deployment, env.task.dt), target) if format == "onnx" else None
    if deploy is not None:
        files["deploy"] = deploy.name
    write_atomic(file, content)
    write_atomic(about, as_text({**description, "policy_sha256": digest, "files": files}))
    beside = (target / assets[0]).parent if assets else None
    return Exported(file, about, model, exported.command is not None, difference, beside, deploy)


def _deployment(env: GroupedVecTask, description: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the task tells programs of robots; of its observations only if the policy observes no others."""
    deployment = env.task.deployment(0)
    if not observes_terms(description, deployment.get("observation_terms_width", ())):
        return {name: x for name, x in deployment.items() if not name.startswith("observation_")}
    return deployment


def _write_deploy(yaml: str | None, target: Path) -> Path | None:
    """Write deploy.yaml; without a text remove that of an earlier export, which is of another policy."""
    file = target / "deploy.yaml"
    if yaml is not None:
        write_atomic(file, yaml)
        return file
    if file.is_file() and file.read_bytes().startswith(HEADER.encode()):
        file.unlink()
    return None


def _earlier_files(about: Path, digest: str) -> dict[str, str]:
    """Return the files that earlier exports of the same policy wrote, by format."""
    try:
        before = parse_json(about.read_text(encoding="utf-8"))
        files = before["files"] if before["policy_sha256"] == digest else {}
        return {name: files[name] for name in FORMATS if (about.parent / files.get(name, "")).is_file()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _build(run: OpenedRun, policy: Policy) -> tuple[GroupedVecTask, ExportedPolicy, dict[str, Any], Tensor]:
    """Return a small environment of the candidate, the module, its description, and observations to compare with."""
    with user_input():  # the run may have been made on another machine
        sim, device = pick_simulator("auto", "cpu")
    spec = run.spec.changed(sim=sim, device=device, num_envs_per_candidate=_NUM_ENVS)
    baselines = [source for name, source in run.sources.items() if name in BASELINES]
    group = prepare_one(spec, run.source(policy.candidate), policy.seed, baselines)
    widths = (policy.obs_dim, policy.action_dim)
    if widths != group.widths[:2]:
        raise UserError(
            f"{policy.file} is of another task or candidate: it has {widths[0]} observations and {widths[1]} actions,"
            f" and {policy.candidate} has {group.widths[0]} and {group.widths[1]}"
        )
    with ALONE, user_input():
        env = build_env(spec, [group.shaping], [policy.seed], _NUM_ENVS)
    rollout_obs, varying = _roll(env, policy)
    # in other tasks, the task's own step converts actions
    has_command = Can.POSITION_DRIVES in spec.task.can or "command" in group.shaping.functions
    command = affine_command(env, varying) if has_command and all(env.alive) else None
    contract = TaskContract.of(env.task)
    exported = ExportedPolicy(policy.module, contract.clip_observations, contract.clip_actions, command)
    unlikely = normal(0, 0, Purpose.ACTION, len(rollout_obs), policy.obs_dim)
    obs = torch.cat([rollout_obs, rollout_obs + unlikely, 100.0 * unlikely])
    description = describe(run, policy, group.shaping, contract, command)
    if not has_command:
        description["outputs"][COMMAND] = {"in_file": False, "why_not": "the task's own code converts actions"}
    return env, exported, description, obs


def _roll(env: GroupedVecTask, policy: Policy) -> tuple[Tensor, set[str]]:
    """Play some steps; return observations ``(steps * num_envs, obs_dim)``, and the keys of the state that vary."""
    obs, all_obs = env.reset(), []
    first = {key: x[:1].clone() for key, x in env.state.items()}
    varying: set[str] = set()
    for step in range(_STEPS):
        all_obs.append(obs.clone())
        obs = env.step(policy(obs) + 0.3 * normal(0, step, Purpose.ACTION, env.num_envs, policy.action_dim)).obs
        varying |= {key for key, x in env.state.items() if not bool((x == first[key]).all())}
    return torch.cat(all_obs), varying


def _pack(
    exported: ExportedPolicy, format: str, obs_dim: int, about: str, properties: Mapping[str, str]
) -> tuple[bytes, Run]:
    """Return the content of the policy's file, and a function that runs it."""
    if format == "onnx":
        content = onnx_bytes(exported, obs_dim, about, properties)
        return content, onnx_runner(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch.jit is deprecated, but robots load its files
        traced = torch.jit.trace(exported, torch.zeros(2, obs_dim))
        buffer = io.BytesIO()
        torch.jit.save(traced, buffer)
        loaded = torch.jit.load(io.BytesIO(buffer.getvalue()))
    return buffer.getvalue(), lambda obs: [x.numpy() for x in loaded(torch.from_numpy(obs))]


def _difference(run: Run, policy: Policy, env: GroupedVecTask, obs: Tensor) -> float:
    """Return the largest difference between the actions of file and policy, clipped as in the environment.

    It is relative to the largest action of its observation where that is above 1, as float32's rounding is: tasks that
    do not clip actions have ones of 100 at observations that no robot meets.
    """
    limit, clip = env.task.clip_actions, env.task.clip_observations
    wanted = policy(obs.clamp(-clip, clip)).clamp(-limit, limit).numpy()
    scale = np.abs(wanted).max(axis=1, keepdims=True).clip(min=1.0)
    return float((np.abs(run(obs.numpy())[0] - wanted) / scale).max())


def _write_model(spec: RunSpec, env: GroupedVecTask, robot: Path, path: Path) -> list[str]:
    """Write the robot's MJCF and its asset files beside it; return their paths relative to it."""
    from envcoder_bench.sim.portable_model import portable_model

    cfg = spec.config
    control = cfg.task.env.get("control", {})
    gains = (control.get("stiffness"), control.get("damping"))
    effort = env.dispatch.shapings[0].effort
    with user_input():
        timing, options = control_timing(cfg.task), engine_options(cfg.task)
        model = portable_model(robot, *timing, effort, *gains, options, path.parent)
    for name, content in model.assets.items():
        asset = path.parent / name
        if asset.parent.is_file():
            raise UserError(f"{asset.parent} is a file, and the model's files belong there: give another --output")
        asset.parent.mkdir(exist_ok=True)
        write_atomic(asset, content)
    write_atomic(path, model.xml)
    return list(model.assets)
