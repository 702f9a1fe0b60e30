"""Write the folder of an Isaac Gym task: its baselines as candidate files, and its YAML files."""

import ast
import logging
import os
import tempfile
from pathlib import Path
from typing import Any

import yaml

from envcoder_bench.tasks.base import HUMAN, UNSHAPED
from envcoder_bench.tasks.isaacgym_tasks.source import Source

log = logging.getLogger(__name__)


def write_folder(folder: Path, source: Source, score: Path | None) -> None:
    """Write a task's folder: both baselines and the YAML files."""
    config = {**source.config, "name": source.name}
    text = None if score is None else score.read_text(encoding="utf-8")
    files = {
        f"{HUMAN}.py": _HUMAN.format(address=source.address, file=source.file.name),
        f"{UNSHAPED}.py": unshaped(source, text),
        "task.yaml": yaml.safe_dump(config, sort_keys=False),
    }
    if source.train is not None:
        files["train.yaml"] = yaml.safe_dump(_feedforward(source.train, source.address), sort_keys=False)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False, encoding="utf-8") as scratch:
            scratch.write(content)
        os.replace(scratch.name, folder / name)


def _feedforward(train: dict[str, Any], address: str) -> dict[str, Any]:
    """Return the settings of an rl_games YAML for a feedforward policy; log settings that matter and are removed."""
    params = train.get("params") or {}
    network, config = params.get("network") or {}, params.get("config") or {}
    algorithm = (params.get("algo") or {}).get("name", "a2c_continuous")
    lost = [f"params.network.{key}" for key in ("rnn", "cnn") if key in network]
    lost += [f"params.config.{key}" for key in ("central_value_config",) if key in config]
    lost += ["params.algo.name"] * (algorithm != "a2c_continuous")
    if lost:
        log.warning("%s: removed from its PPO config, not supported: %s", address, ", ".join(lost))
    kept = {key: network[key] for key in ("mlp", "space") if key in network}
    if config.get("lr_schedule") == "constant":
        config = {**config, "lr_schedule": "identity"}  # rl_games accepts both names
    left_out = ("central_value_config", "player", "mixed_precision", "use_diagnostics")
    return {"params": {"network": kept, "config": {k: v for k, v in config.items() if k not in left_out}}}


_HUMAN = '''"""{address}, the task's own shaping: what {file} computes, resets, and makes of actions."""


def compute_reward(rew_buf):
    """The task's own reward."""
    return rew_buf


def compute_observation(obs_buf):
    """The task's own observation."""
    return obs_buf


def compute_terminal(reset_buf):
    """The task's own end of an episode, without time-outs."""
    return reset_buf
'''

_ALIVE = '''def compute_reward(reset_buf):
    """1 for every step on which the task itself does not end the episode; it has no fitness of its own."""
    return 1.0 - (reset_buf != 0).float()
'''


def unshaped(source: Source, fitness: str | None) -> str:
    """Return the source of the unshaped baseline: the fitness is the reward; it terminates unless ``ENDS`` is False."""
    reward, ends = _ALIVE, True
    head = ""
    if fitness is not None:
        tree = ast.parse(fitness)
        lines = fitness.splitlines()
        parts = [node for node in tree.body[1:] if not _is_switch(node, "ENDS", "ONCE", "SUM")]
        ends = not any(_is_switch(node, "ENDS") and not ast.literal_eval(node.value) for node in tree.body)  # type: ignore[attr-defined]
        imports = [node for node in parts if isinstance(node, (ast.Import, ast.ImportFrom))]
        rest = [node for node in parts if node not in imports]
        head = "\n".join("\n".join(lines[n.lineno - 1 : n.end_lineno]) for n in imports)
        reward = "\n\n\n".join("\n".join(lines[n.lineno - 1 : n.end_lineno]) for n in rest)
        reward = reward.replace("def compute_fitness(", "def compute_reward(") + "\n"
    document = f'"""{source.address}, the unshaped baseline: the fitness is the reward; the rest is the task\'s own."""'
    parts = [document, *([head] if head else []), "", reward.rstrip("\n"), "", "", _OBSERVATION]
    if ends:
        parts += ["", _TERMINAL]
    return "\n".join(parts)


_OBSERVATION = '''def compute_observation(obs_buf):
    """The task's own observation."""
    return obs_buf
'''
_TERMINAL = '''def compute_terminal(reset_buf):
    """The task's own end of an episode, without time-outs."""
    return reset_buf
'''


def _is_switch(node: ast.AST, *names: str) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in names
