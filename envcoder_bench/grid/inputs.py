"""The inputs of a grid, checked, and their file in its folder."""

import logging
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml
from pydantic import TypeAdapter

from envcoder_bench.core.errors import UserError, near_matches, recorded_input, user_input
from envcoder_bench.core.files import file_digest, write_atomic
from envcoder_bench.core.folders import GRID, RUN, other_kind
from envcoder_bench.core.yaml_files import parse_plain
from envcoder_bench.grid.batch import Spec
from envcoder_bench.grid.deployments import OWN
from envcoder_bench.grid.policies import LoadedPolicy, load_policy_file
from envcoder_bench.grid.robots import Layout, Robot, find_robot, grid_points, read_layout
from envcoder_bench.grid.settings import GridSettings, compose_settings
from envcoder_bench.grid.trial import refusals
from envcoder_bench.terrain.arenas import BOULDERS, FLAT, STAIRS, Arena, read_arena

CONFIG = "config.yaml"
_ARENAS = TypeAdapter(tuple[Arena, ...])  # reads and writes the arenas of CONFIG
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Inputs:
    """The inputs of a grid.

    Attributes:
        settings: cfg/eval_policies.yaml with overrides.
        policies: on the CPU.
    """

    robot: Robot
    settings: GridSettings
    policies: tuple[LoadedPolicy, ...]
    arenas: tuple[Arena, ...]

    @property
    def specs(self) -> list[Spec]:
        """All episodes, sorted by policy."""
        numbers = range(self.settings.episodes)
        pairs = ((p, a) for p in range(len(self.policies)) for a in range(len(self.arenas)))
        return [Spec(policy, arena, number) for policy, arena in pairs for number in numbers]

    def named(self, spec: Spec) -> dict[str, str]:
        """Return an episode's id, and the names of its policy and arena."""
        policy, arena = self.policies[spec.policy].name, self.arenas[spec.arena].name
        return {
            "episode_id": f"{arena}_{policy}_{spec.number:04d}",
            "policy": policy,
            "environment": arena,
        }


def check_inputs(
    robot: str,
    policies: Sequence[str],
    terrains: Sequence[str],
    overrides: Sequence[str] = (),
    layouts: Sequence[str] = (),
) -> Inputs:
    """Read and check the words of a command line.

    Args:
        policies: ``NAME=FILE``, or a run folder, for all its candidates.
        terrains: names or YAML files.
        overrides: ``key=value`` of cfg/eval_policies.yaml.
        layouts: ``NAME=LAYOUT``, for policies whose width does not tell their layout.

    Raises:
        UserError: anything is wrong.
    """
    cfg = compose_settings(overrides)
    chosen = find_robot(robot, cfg)
    files, skippable = expand_runs(policies)
    wanted = _unique("--layouts", [_pair("--layouts", word) for word in layouts])
    for name in wanted:
        if name not in files:
            raise UserError(f"--layouts {name}: no such policy{near_matches(name, files)}; {', '.join(files)}")
    arenas = find_arenas(terrains, cfg)
    return Inputs(chosen, cfg, tuple(_load(chosen, cfg, files, wanted, skippable, tries=True)), tuple(arenas))


def expand_runs(words: Sequence[str]) -> tuple[dict[str, str], set[str]]:
    """Replace run folders among ``NAME=FILE`` words by the policies of all their candidates.

    Returns:
        The files by name, and the names that come from run folders.

    Raises:
        UserError: a word is neither, or a name is given twice.
    """
    pairs: list[tuple[str, str]] = []
    expanded: set[str] = set()
    for word in words:
        folder = Path(word) / "candidates"
        other = other_kind(word, RUN)
        if other is not None:
            raise UserError(f"--policies {word}: {other}")
        if not folder.is_dir():
            pairs.append(_pair("--policies", word))
            continue
        policies = _policies_of(Path(word))
        if not policies:
            raise UserError(f"--policies {word}: no candidate of this run has a policy")
        pairs += [(name, str(path)) for name, path in sorted(policies.items())]
        expanded |= set(policies)
    return _unique("--policies", pairs), expanded


def _policies_of(folder: Path) -> dict[str, Path]:
    """Return the policy of each candidate's best seed; candidates without a policy are left out."""
    from envcoder_bench.run.folder.policies import find_policy, open_run

    run = open_run(folder)
    paths = {}
    for name in run.sources:
        try:
            paths[name] = find_policy(run, name)[1]
        except UserError as error:
            log.warning("left out: %s", error)
    return paths


def _load(
    robot: Robot,
    cfg: GridSettings,
    files: Mapping[str, str],
    wanted: Mapping[str, str],
    skippable: Collection[str] = (),
    tries: bool = False,
) -> list[LoadedPolicy]:
    layouts = known_layouts(robot, cfg) if robot.stance else {}
    for name, layout in wanted.items():
        if layout not in (layouts or [OWN]):
            there = f"there are {', '.join(layouts)}" if layouts else f"policies of {robot.name} bring their own"
            raise UserError(f"--layouts {name}={layout}: no such layout{near_matches(layout, layouts)}; {there}")
    reasons = refusals(files, sorted({layout.width for layout in layouts.values()})) if tries else {}
    loaded = []
    # a policy of a run that does not fit does not keep the others out
    for name, file in files.items():
        try:
            if name in reasons:
                raise UserError(reasons[name])
            loaded.append(load_policy_file(name, file, layouts, wanted.get(name), robot, cfg))
        except UserError as error:
            if name not in skippable:
                raise
            log.warning("left out: %s", error)
    if not loaded:
        raise UserError("no policy is left")
    return loaded


def known_layouts(robot: Robot, cfg: GridSettings) -> dict[str, Layout]:
    """Return the layouts of the settings by name. Raises UserError for an invalid one."""
    xs, ys = (_centred(side, cfg.scan.spacing) for side in (cfg.scan.length, cfg.scan.width))
    points = grid_points(xs, ys, cfg.scan.order)
    return {name: read_layout(name, layout, robot.dof_names, points) for name, layout in cfg.layouts.items()}


def _centred(length: float, spacing: float) -> list[float]:
    """Return positions from ``-length / 2`` to ``length / 2``."""
    count = round(length / spacing)
    return [(k - 0.5 * count) * spacing for k in range(count + 1)]


def _pair(flag: str, word: str) -> tuple[str, str]:
    name, separator, value = word.partition("=")
    if not (separator and name and value):
        takes = "NAME=FILE, or the folder of a run" if flag == "--policies" else "NAME=LAYOUT"
        raise UserError(f"{flag} takes {takes}, got '{word}'")
    if not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise UserError(f"{flag}: a name has letters, digits, '-', '_' and '.', got '{name}'")
    return name, value


def _unique(flag: str, pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    values: dict[str, str] = {}
    for name, value in pairs:
        if name in values:
            raise UserError(f"{flag}: '{name}' is given twice")
        values[name] = value
    return values


def write_inputs(inputs: Inputs, folder: Path) -> None:
    """Write everything that a resumed grid needs, except the policies' files."""
    policies = {
        policy.name: {
            "file": str(Path(policy.file).resolve()),
            "sha256": file_digest(policy.file),
            "layout": policy.layout.name,
            "deployment": {file: file_digest(file) for file in (policy.deployment.files if policy.deployment else ())},
        }
        for policy in inputs.policies
    }
    data = {
        "robot": inputs.robot.name,
        "model": file_digest(inputs.robot.model),
        "policies": policies,
        "arenas": _ARENAS.dump_python(inputs.arenas, mode="json"),
        "settings": inputs.settings.plain(),
    }
    write_atomic(folder / CONFIG, yaml.safe_dump(data, sort_keys=False, allow_unicode=True))


def read_inputs(folder: Path) -> Inputs:
    """Read what ``write_inputs`` wrote.

    Raises UserError if the folder has no grid, the file is damaged, or a policy's file is missing or has changed.
    """
    path = folder / CONFIG
    other = other_kind(folder, GRID)
    if other is not None:
        raise UserError(other)
    try:
        data = parse_plain(path.read_text(encoding="utf-8"))
        settings = data["settings"]
        arenas = _ARENAS.validate_python(data["arenas"])
        policies = data["policies"]
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(f"{folder}: the folder does not contain a grid (no {CONFIG})") from error
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UserError(f"{path} is damaged, or not that of a grid: {error}") from error
    # the policies must be the same as when the grid began
    with recorded_input(path):
        cfg = GridSettings.checked(settings)
    robot = find_robot(data["robot"], cfg)
    if data.get("model", file_digest(robot.model)) != file_digest(robot.model):
        raise UserError(f"the model of {robot.name} has changed since the grid began; put the old file back")
    for name, policy in policies.items():
        if not Path(policy["file"]).is_file():
            raise UserError(f"policy {name}: {policy['file']} is missing; put it back to resume")
        if file_digest(policy["file"]) != policy["sha256"]:
            raise UserError(f"policy {name}: {policy['file']} has changed since the grid began; put the old file back")
        for file, before in policy.get("deployment", {}).items():
            if not Path(file).is_file() or file_digest(file) != before:
                raise UserError(f"policy {name}: {file} has changed since the grid began; put the old file back")
    files = {name: policy["file"] for name, policy in policies.items()}
    loaded = _load(robot, cfg, files, {name: policy["layout"] for name, policy in policies.items()})
    return Inputs(robot, cfg, tuple(loaded), arenas)


def on_device(policies: Sequence[LoadedPolicy], device: str) -> list[LoadedPolicy]:
    """Return the policies with their modules on a device."""
    return [replace(policy, module=policy.module.to(device)) for policy in policies]


# terrains


BUILT_IN = ("friction", "grass", "boulder", "stairs")
_SUFFIXES = (".yaml", ".yml")


def find_arenas(words: Sequence[str], cfg: GridSettings) -> list[Arena]:
    """Return the arenas with these names or files.

    Raises UserError for an unknown name, a missing file or an invalid one.
    """
    arenas: list[Arena] = []
    for word in words:
        arena = built_in(word, cfg) if word in BUILT_IN else _read(word, cfg)
        if arena.name in [other.name for other in arenas]:
            raise UserError(f"two terrains are named '{arena.name}': give each once")
        arenas.append(arena)
    return arenas


def built_in(name: str, cfg: GridSettings) -> Arena:
    """Return an arena of BUILT_IN, with the figures of the settings. Raises UserError for a bad figure."""
    figures, size, friction = cfg.arenas, float(cfg.arenas.zone), cfg.arenas.ground_friction
    if name == "friction":
        which = ("static", "dynamic").index(figures.friction.use)
        zones = [{"type": FLAT, "friction": pair[which]} for pair in figures.friction.zones]
    elif name == "grass":
        zones = [{"type": FLAT, "friction": friction, "drag": drag} for drag in figures.grass]
    elif name == "boulder":
        zones = []
        for low, high, count in figures.boulder.zones:
            cell = min(figures.boulder.cell, max(figures.boulder.least_cell, 0.4 * low))
            cell = size / math.ceil(size / cell - 1e-6)  # a whole number of cells
            boulders = {"type": BOULDERS, "difficulty": [low, high], "count": count, "cell": cell}
            zones.append({**boulders, "friction": friction})
    else:
        steps = {"type": STAIRS, "friction": friction, "count": figures.stairs.steps, "tread": figures.stairs.tread}
        zones = [{**steps, "difficulty": riser} for riser in figures.stairs.zones]
    data = {"zones": [{**zone, "size": size} for zone in zones]}
    with user_input():
        return replace(read_arena(f"arenas.{name}", data, float(figures.width), float(figures.apron)), name=name)


def _read(word: str, cfg: GridSettings) -> Arena:
    path = Path(word)
    if path.suffix not in _SUFFIXES:
        raise UserError(
            f"unknown terrain '{word}'{near_matches(word, BUILT_IN)}; there are {', '.join(BUILT_IN)}, and YAML files"
        )
    if not path.is_file():
        raise UserError(f"--terrains {word}: the file does not exist")
    try:
        data = parse_plain(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path}: it is not YAML: {error}") from error
    # the zones
    with user_input():
        arena = read_arena(str(path), data, float(cfg.arenas.width), float(cfg.arenas.apron))
    return replace(arena, name=path.stem)
