"""ANYmal candidates for benchmarks: realistic functions, all files different.

Candidate k is made of a subset of the pool that its own generator draws, with constants of its own, so that the first
4 of 250 are the 4 of 4. Every one has reward, observation, torque or target, and terminal; every fourth also initial
state and goal, which it draws with torch's own random functions, as people do who do not know the helpers. Every fifth
reads its inputs as parameters bound by name, the others from ``state_dict``.
"""

import random
import re
from collections.abc import Sequence
from pathlib import Path

from envcoder_bench.run.folder.run_folder import CandidateSource
from envcoder_bench.tasks.anymal.task import FIELDS

from . import pool

HEADER = '''"""Benchmark candidate {k}."""
from isaacgymenvs.utils.torch_jit_utils import get_euler_xyz, quat_axis, quat_rotate_inverse, torch_rand_float
'''


def make_candidates(count: int) -> list[CandidateSource]:
    """Return the first ``count`` candidates."""
    return [CandidateSource(f"bench_{k:04d}", f"bench_{k:04d}.py", _source(k)) for k in range(count)]


def write_candidates(folder: Path, count: int) -> None:
    """Write the first ``count`` candidates as files."""
    folder.mkdir(parents=True, exist_ok=True)
    for candidate in make_candidates(count):
        (folder / candidate.file).write_text(candidate.source, encoding="utf-8")


def _source(k: int) -> str:
    rng = random.Random(f"candidate {k}")  # seeding with a string is the same on every machine
    by_name = k % 5 == 4
    functions = [
        _function("compute_reward", _reward(rng), rng, by_name),
        _function("compute_observation", _observation(rng), rng, by_name),
        _action(rng, by_name),
        _function("compute_terminal", _terminal(rng), rng, by_name),
    ]
    if k % 4 == 0:
        start = [rng.choice(pool.STARTS), *rng.sample(pool.START_EXTRAS, 1)]
        functions.append(_function("compute_initial_state", [f"return {{{', '.join(start)}}}"], rng, by_name))
        goal = f'return {{"commands": {rng.choice(pool.GOALS)}}}'
        functions.append(_function("compute_goal", [goal], rng, by_name))
        draw = f"def torch_rand_float(low, high, shape, device):\n    return {rng.choice(pool.DRAWS)}"
        functions.insert(0, draw)
    header = HEADER.format(k=k)
    return (header.replace(", torch_rand_float", "") if k % 4 == 0 else header) + "".join(
        f"\n\n{function}\n" for function in functions
    )


def _reward(rng: random.Random) -> list[str]:
    terms = {"lin_vel": rng.choice(pool.TRACK_LINEAR), "ang_vel": rng.choice(pool.TRACK_YAW)}
    for name in rng.sample(sorted(pool.STYLE), rng.randint(3, 9)):
        terms[name] = pool.STYLE[name]
    entries = [f'    "{name}": {term},' for name, term in terms.items()]
    returned = "return total" if rng.random() < 0.2 else "return total, components"
    return ["components = {", *entries, "}", f"total = {rng.choice(pool.TOTALS)}", returned]


def _observation(rng: random.Random) -> list[str]:
    parts = [rng.choice(choices) for choices in pool.OBSERVED] + rng.sample(pool.EXTRAS, rng.randint(0, 4))
    rng.shuffle(parts)
    lines = ["obs = torch.cat((", *(f"    {part}," for part in parts), "), dim=-1)"]
    if rng.random() < 0.15:  # sensor noise, as legged_gym adds it
        lines.append(f"obs = obs + {rng.choice(pool.NOISES)}")
    if rng.random() < 0.3:
        lines.append("obs = torch.clamp(obs, -@5.0~20.0@, 20.0)")
    return [*lines, "return obs"]


def _action(rng: random.Random, by_name: bool) -> str:
    torque = rng.random() < 0.5
    expression = rng.choice(pool.TORQUES if torque else pool.TARGETS)
    lines = [f"return {expression}"]
    if rng.random() < 0.3:
        lines.insert(0, "action = torch.clamp(action, -@0.7~1.0@, 1.0)")
    name = "compute_torque" if torque else "compute_dof_target"
    return "ACTION_DIM = 12\n\n\n" + _function(name, lines, rng, by_name, ["action"])


def _terminal(rng: random.Random) -> list[str]:
    return [f"return {' | '.join(f'({rule})' for rule in rng.sample(pool.ENDINGS, rng.randint(1, 3)))}"]


def _function(name: str, body: Sequence[str], rng: random.Random, by_name: bool, parameters: Sequence[str] = ()) -> str:
    """Return a function with the given last lines, the locals that they use, and random numbers."""
    used = set(_names(body))
    lines: list[str] = []
    for local in reversed(pool.LOCALS):  # reversed, because a local may use earlier ones
        if local in used:
            lines.insert(0, f"{local} = {pool.LOCALS[local]}")
            used.update(_names([pool.LOCALS[local]]))
    keys = [key for key in FIELDS if key in used]
    if not by_name:
        lines = [*(f'{key} = state_dict["{key}"]' for key in keys), *lines]
    head = f"def {name}({', '.join([*parameters, *(keys if by_name else ['state_dict'])])}):"
    return "\n".join([head, *(f"    {_drawn(line, rng)}" for line in [*lines, *body])])


def _names(lines: Sequence[str]) -> list[str]:
    return re.findall(r"[A-Za-z_]\w*", re.sub(r"'\w+':|\"\w+\"", "", "\n".join(lines)))


def _drawn(line: str, rng: random.Random) -> str:
    def number(match: re.Match) -> str:
        value = rng.uniform(float(match[1]), float(match[2]))
        return f"{value:.3g}" if abs(value) >= 1e-3 else f"{value:.3e}"

    return re.sub(r"@(-?[\d.]+)~(-?[\d.]+)@", number, line)
