"""The terrains of a grid: the four built-in arenas, and arenas from YAML files."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import yaml

from envcoder_bench.core.errors import UserError, near_matches, user_input
from envcoder_bench.grid.settings import GridSettings
from envcoder_bench.terrain.arenas import BOULDERS, FLAT, STAIRS, Arena, read_arena

BUILT_IN = ("friction", "grass", "boulder", "stairs")
_SUFFIXES = (".yaml", ".yml")


def find_arenas(words: Sequence[str], cfg: GridSettings) -> list[Arena]:
    """Return the arenas with these names or files.

    Raises:
        UserError: there is no such arena, or its file is not valid.
    """
    arenas: list[Arena] = []
    for word in words:
        arena = built_in(word, cfg) if word in BUILT_IN else _read(word, cfg)
        if arena.name in [other.name for other in arenas]:
            raise UserError(f"two terrains are named '{arena.name}': give each once")
        arenas.append(arena)
    return arenas


def built_in(name: str, cfg: GridSettings) -> Arena:
    """Return one of BUILT_IN, by the figures of the settings. Raises UserError for a bad figure."""
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
        raise UserError(f"--terrains {word}: there is no such file")
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: it is not YAML: {' '.join(str(error).split())}") from error
    with user_input():
        arena = read_arena(str(path), data, float(cfg.arenas.width), float(cfg.arenas.apron))
    return replace(arena, name=path.stem)
