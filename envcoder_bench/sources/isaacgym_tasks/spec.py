"""The spec of a task of Isaac Gym code, and its folder with baselines and YAML files."""

import inspect
import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from envcoder_bench.core.files import digest, write_shared
from envcoder_bench.core.folders import cache_folder
from envcoder_bench.core.settings import dotted, plain
from envcoder_bench.sources.isaacgym_tasks.driver import TERMS
from envcoder_bench.sources.isaacgym_tasks.find_source import find_source
from envcoder_bench.sources.isaacgym_tasks.fitness import Fitness, fitness_of
from envcoder_bench.sources.isaacgym_tasks.isaac_task import IsaacTask
from envcoder_bench.sources.isaacgym_tasks.probe import Facts, probe
from envcoder_bench.sources.isaacgym_tasks.random_params import PARAMS
from envcoder_bench.sources.isaacgym_tasks.source import Source, group_weights
from envcoder_bench.sources.shipped import FOLDERS
from envcoder_bench.tasks.base import HUMAN, UNSHAPED
from envcoder_bench.tasks.sim_task import COMMON_KEYS
from envcoder_bench.tasks.spec import Can, TaskSpec

log = logging.getLogger(__name__)
SCALES = "reward_scales"  # the key of the weights of legged_gym's reward terms, constants of the state


def isaac_spec(task: str) -> TaskSpec:
    """Find a task by its address, such as ``isaacgymenvs:Ant``; it is not simulated. Raises ValueError.

    A class with the name of a shipped task, such as a repository's Humanoid, is ``isaacgym_Humanoid``.
    """
    source = find_source(task)
    if source.name in FOLDERS:
        source = replace(source, name=f"isaacgym_{source.name}")
    fitness = fitness_of(source.task_class)
    version = _digest(source, fitness)
    folder = cache_folder() / "isaacgym_tasks" / f"{source.name}-{version}"
    write_folder(folder, source, fitness)
    train = folder / "train.yaml"
    code = Probed(source, fitness, folder)
    document = (source.task_class.__doc__ or "").strip().splitlines()
    return TaskSpec(
        name=source.name,
        folder=folder,
        config=folder / "task.yaml",
        make=code.make,
        train=train if train.is_file() else None,
        source=source.address,
        digest=version,
        summary=f"{document[0] if document else source.task_class.__name__} ({source.address})",
        fitness_meaning="" if fitness is None else fitness.meaning,
        can=frozenset({Can.HALF_STEP} if "sim.substeps" in dotted(source.config) else ()),
        config_keys=(*COMMON_KEYS, *dotted(source.config)),
        try_code=code.baselines,
    )


class Probed:
    """A task's code, with what a small simulation shows of it: once for each config.

    Args:
        folder: with the baselines for a reward without terms.
    """

    def __init__(self, source: Source, fitness: Fitness | None, folder: Path) -> None:
        self._source, self._fitness, self._folder = source, fitness, folder
        self._known: dict[str, tuple[Facts, Path]] = {}  # the key is a config

    def baselines(self, config: Mapping[str, Any] | None = None) -> Path:
        """Return the folder of the baselines with a config; None is the YAML's. Raises ValueError if the code fails."""
        return self._probed(config)[1]

    def make(self, cfg: Mapping[str, Any], num_envs: int, sim: str, device: str) -> IsaacTask:
        """Build the task; its code brings its own simulation."""
        return IsaacTask(self._source, self._fitness, self._probed(cfg)[0], cfg, num_envs, device)

    def _probed(self, config: Mapping[str, Any] | None) -> tuple[Facts, Path]:
        content = self._source.config if config is None else plain(config)
        key = _config_key(content)
        if key not in self._known:
            facts, folder = probe(self._source, content), self._folder
            if _terms(facts):  # known only now: the human baseline returns them as components
                folder = folder.with_name(f"{folder.name}-terms")
                write_folder(folder, self._source, self._fitness, facts)
            self._known[key] = facts, folder
        return self._known[key]


def _config_key(config: Mapping[str, Any]) -> str:
    """Return a text that differs for configs of which a task may have different properties."""
    content = {key: value for key, value in config.items() if key != "name"}
    if isinstance(content.get("task"), dict):
        content["task"] = {key: value for key, value in content["task"].items() if key not in ("randomize", PARAMS)}
    return yaml.safe_dump(content)


def _digest(source: Source, fitness: Fitness | None) -> str:
    text = source.file.read_text(encoding="utf-8", errors="replace")
    parts = [repr(source.config), text, unshaped(source, fitness), *map(repr, fitness[1:] if fitness else ())]
    return digest("\n".join(parts))[:16]


def write_folder(folder: Path, source: Source, fitness: Fitness | None, facts: Facts | None = None) -> None:
    """Write a task's folder: both baselines and the YAML files."""
    config = {**source.config, "name": source.name}
    shaping = _HUMAN.format(address=source.address, file=source.file.name, reward=_reward(source, facts))
    human = "\n\n".join([shaping, _OBSERVATION, _TERMINAL])
    critic = f"\n\n{_CRITIC_OBSERVATION}" if _central_value(source.train or {}) else ""
    files = {
        f"{HUMAN}.py": human + critic,
        f"{UNSHAPED}.py": unshaped(source, fitness) + critic,
        "task.yaml": yaml.safe_dump(config, sort_keys=False),
    }
    if source.train is not None:
        files["train.yaml"] = yaml.safe_dump(_feedforward(source.train, source.address), sort_keys=False)
    for name, content in files.items():
        write_shared(folder / name, content)


def _reward(source: Source, facts: Facts | None) -> str:
    """Return the function of a task's own reward: the sum of its groups of rewards, as HoST's critics weight them.

    The terms that the probe noted are its components, with their scales.
    """
    weights = group_weights(source.config)
    total = " + ".join(f"{weight} * rew_buf[:, {k}]" for k, weight in enumerate(weights)) or "rew_buf"
    terms = _terms(facts) if facts else set()
    if facts is None or not terms:
        return _REWARD.format(parameters="rew_buf", document="The task's own reward.", value=total)
    scaled = not facts.terms_have_scales and terms <= _entries(facts.constant_names, SCALES)
    parameters = ", ".join(("rew_buf", TERMS, *[SCALES] * scaled))
    items = f"{{name: {SCALES}[name] * term for name, term in {TERMS}.items()}}" if scaled else f"dict({TERMS})"
    value = "torch.clip(total, min=0.0)" if facts.clips_terms else "total"
    return _TERMS.format(parameters=parameters, items=items, total=total, value=value)


def _terms(facts: Facts) -> set[str]:
    return _entries(facts.keys, TERMS)


def _entries(keys: Collection[str], name: str) -> set[str]:
    return {key.removeprefix(f"{name}_") for key in keys if key.startswith(f"{name}_")}


def _feedforward(train: dict[str, Any], address: str) -> dict[str, Any]:
    """Return the settings of an rl_games YAML for a feedforward policy; log settings that matter and are removed."""
    params = train.get("params") or {}
    network, config = params.get("network") or {}, params.get("config") or {}
    algorithm = (params.get("algo") or {}).get("name", "a2c_continuous")
    lost = [f"params.network.{key}" for key in ("rnn", "cnn") if key in network]
    lost += ["params.algo.name"] * (algorithm != "a2c_continuous")
    if lost:
        log.warning("%s: removed from its PPO config, not supported: %s", address, ", ".join(lost))
    kept = {key: network[key] for key in ("mlp", "space") if key in network}
    central = _central_value(train)
    if central:  # whose loss has no coefficient, and whose gradients are clipped by themselves
        kept["separate"] = True
        config = {**config, "critic_coef": 2, "grad_norm_per_network": True}
        units = ((central.get("network") or {}).get("mlp") or {}).get("units")
        if units != (network.get("mlp") or {}).get("units"):
            log.warning("%s: its central value network gets the units of the policy's network, not %s", address, units)
    if config.get("lr_schedule") == "constant":
        config = {**config, "lr_schedule": "identity"}  # rl_games accepts both names
    left_out = ("central_value_config", "player", "mixed_precision", "use_diagnostics")
    return {"params": {"network": kept, "config": {k: v for k, v in config.items() if k not in left_out}}}


def _central_value(train: Mapping[str, Any]) -> dict[str, Any]:
    """Return an rl_games YAML's config of a value network that sees a task's ``states_buf``; empty if it has none."""
    return ((train.get("params") or {}).get("config") or {}).get("central_value_config") or {}


_OBSERVATION = '''def compute_observation(obs_buf):
    """The task's own observation."""
    return obs_buf
'''
_TERMINAL = '''def compute_terminal(reset_buf):
    """The task's own end of an episode, without time-outs."""
    return reset_buf
'''
_CRITIC_OBSERVATION = '''def compute_critic_observation(states_buf):
    """The states of the task's asymmetric observations, which its central value network sees."""
    return states_buf
'''
_HUMAN = '''"""{address}, the task's own shaping: what {file} computes, resets, and makes of actions."""


{reward}'''

_REWARD = '''def compute_reward({parameters}):
    """{document}"""
    return {value}
'''

_TERMS = '''def compute_reward({parameters}):
    """The task's own reward, and its terms; a fixed reward, such as after a fall, is not a sum of them."""
    terms = {items}
    added = [term for name, term in terms.items() if name != "termination"]
    end = terms.get("termination", torch.zeros_like(rew_buf))

    def combined(total, end):
        return {value} + end

    # where the task's reward is the sum of its terms, to rounding
    own, total = {total}, combined(sum(added), end)
    exact = combined(sum(term.double() for term in added), end.double())
    size = sum(term.abs() for term in terms.values())
    return torch.where(torch.abs(own - exact) <= 1e-5 * size + 1e-7, total, own), terms
'''

_ALIVE = '''def compute_reward(reset_buf):
    """1 for every step on which the task itself does not end the episode; it has no fitness of its own."""
    return 1.0 - (reset_buf != 0).float()
'''


_IMPORTS = {
    "torch.": "import torch",
    "quat_rotate_inverse(": "from envcoder_bench.torch_utils import quat_rotate_inverse",
}


def unshaped(source: Source, fitness: Fitness | None) -> str:
    """Return the source of the unshaped baseline: the fitness is the reward, and the task's own end counts or none."""
    reward = _ALIVE
    if fitness is not None:
        name = fitness.function.__name__
        reward = inspect.getsource(fitness.function).replace(f"def {name}(", "def compute_reward(")
    document = f'"""{source.address}, the unshaped baseline: the fitness is the reward; the rest is the task\'s own."""'
    imports = "\n\n".join(line for word, line in _IMPORTS.items() if word in reward)
    head = f"{document}\n\n{imports}\n" if imports else f"{document}\n"
    functions = [reward, _OBSERVATION, *([_TERMINAL] if fitness is None or fitness.ends else [])]
    return "\n\n".join([head, *functions])
