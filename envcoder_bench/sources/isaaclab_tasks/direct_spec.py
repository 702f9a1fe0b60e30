"""The spec of a task whose environment is a class of its own, and its folder with baselines and YAML files."""

from __future__ import annotations

import functools
import hashlib
import inspect
from pathlib import Path
from typing import Any

import yaml

from envcoder_bench.core.files import write_shared
from envcoder_bench.core.folders import cache_folder
from envcoder_bench.sources.isaacgym_tasks import tensors
from envcoder_bench.sources.isaaclab_tasks.source import Source, described
from envcoder_bench.tasks.base import HUMAN, UNSHAPED, Field
from envcoder_bench.tasks.sim_task import MAX_EPISODE_LENGTH, PROGRESS, actions
from envcoder_bench.tasks.spec import TaskSpec

_RESERVED = ("actions", "progress_buf", "reset_buf", "reward_buf", "obs_buf", "critic_buf", "episode_length_buf")
_TEXT = '''"""{address}, {what}."""


def compute_reward(reward_buf):
    """The reward of the task's own class."""
    return reward_buf


def compute_observation(obs_buf):
    """Its observation."""
    return obs_buf


def compute_terminal(reset_buf):
    """Its end of an episode, without time-outs."""
    return reset_buf
'''
_CRITIC = '''

def compute_critic_observation(critic_buf):
    """Its states, which the critic sees."""
    return critic_buf
'''


def direct_spec(source: Source, train: dict[str, Any], clip_actions: float) -> TaskSpec:
    """Build a task in a small simulation, and return its spec. Raises ValueError if its code fails."""
    from envcoder_bench.sources.isaaclab_tasks.direct import MEANING, DirectTask

    try:
        facts = _facts(source, clip_actions)
    except Exception as error:
        raise ValueError(f"{source.address} cannot be built: {described(error, source.package)}") from error
    digest = hashlib.sha256(repr((source, source.version, facts.widths)).encode()).hexdigest()[:16]
    folder = cache_folder() / "isaaclab_tasks" / f"{source.name}-{digest}"
    critic = _CRITIC if "critic_buf" in facts.widths else ""
    files = {
        f"{HUMAN}.py": _TEXT.format(address=source.address, what="the shaping of the task's own class") + critic,
        f"{UNSHAPED}.py": _TEXT.format(address=source.address, what="the unshaped baseline: the same") + critic,
        "task.yaml": yaml.safe_dump({"name": source.name}),
        "train.yaml": yaml.safe_dump(train, sort_keys=False),
    }
    for name, content in files.items():
        write_shared(folder / name, content)
    return TaskSpec(
        name=source.name,
        folder=folder,
        config=folder / "task.yaml",
        make=lambda cfg, num_envs, sim, device: DirectTask(facts, cfg, num_envs, device),
        train=folder / "train.yaml",
        action_bound=2.0,  # as tasks of managers
        source=source.address,
        digest=digest,
        summary=f"Isaac Lab's {source.task_id} ({source.version}), a class of its own, on MuJoCo",
        fitness_meaning=MEANING,
        config_keys=("name",),
    )


@functools.lru_cache(maxsize=16)
def _facts(source: Source, clip_actions: float) -> Any:
    from envcoder_bench.sources.isaaclab_tasks.direct import DirectFacts, DirectWorld, probe
    from envcoder_bench.sources.isaaclab_tasks.own_class import OwnWorld
    from envcoder_bench.sources.term_tasks.state_reader import StateReader

    make = DirectWorld if source.is_direct else OwnWorld
    world, observed = probe(source, make)
    env = world.env
    rows = tensors.rows_of(env, env.num_envs)
    scene = StateReader(world.sources()).fields()
    names = {slot[0]: slot for slot in rows if not slot[1]}
    keys = {name: slot for name, slot in names.items() if not name.startswith("_") and name not in _RESERVED}
    widths = {key: x.shape[1] for key, x in observed.items()}
    file = Path(inspect.getsourcefile(type(env)) or "").name
    fields = {
        key: Field(rows[slot].shape, "?", f"attribute of {type(env).__name__}, {file}") for key, slot in keys.items()
    }
    fields |= {
        **scene,
        "actions": actions(world.num_actions),
        "progress_buf": PROGRESS,
        "reward_buf": Field((), "-", "the reward of the task's own class; its mean is the fitness"),
        **{key: Field((width,), "-", "what it observes") for key, width in widths.items()},
        "reset_buf": Field((), "-", "whether it ends the episode, time-outs left out; bool"),
        "max_episode_length": MAX_EPISODE_LENGTH,
    }
    histories, alike = tensors.histories_of(env, env.num_envs), world.alike()
    return DirectFacts(source, make, keys, rows, histories, alike, widths, fields, clip_actions)
