"""Small grids for tests."""

from pathlib import Path

import torch

from envcoder_bench.grid.batch import Batch, Scene, Spec
from envcoder_bench.grid.inputs import Inputs, find_arenas
from envcoder_bench.grid.part import Part
from envcoder_bench.grid.policies import LoadedPolicy
from envcoder_bench.grid.robots import ROBOTS, Layout, grid_points, read_layout
from envcoder_bench.grid.settings import compose_settings
from envcoder_bench.terrain.arenas import Arena

SPOT = ROBOTS["spot"]
POINTS = grid_points([0.1 * k for k in range(-8, 9)], [0.1 * k for k in range(-5, 6)])
# the load's position error at the stance, in units of the action: with it Spot stands
STAND = [-0.93, -0.03, 1.46, 0.93, -0.03, 1.46, -0.64, -0.49, 0.78, 0.64, -0.49, 0.78]


def layouts() -> dict[str, Layout]:
    given = compose_settings().layouts
    return {name: read_layout(name, own, SPOT.dof_names, POINTS) for name, own in given.items()}


def network(width: int, seed: int = 0, size: float = 0.3) -> torch.nn.Sequential:
    """Return a policy that stands, and moves a little with what it observes."""
    torch.manual_seed(seed)
    net = torch.nn.Sequential(torch.nn.Linear(width, 32), torch.nn.ELU(), torch.nn.Linear(32, 12))
    with torch.no_grad():
        net[2].weight *= size
        net[2].bias.copy_(torch.tensor(STAND))
    return net.requires_grad_(False)


def policy(name: str, layout: str, module: torch.nn.Module | None = None) -> LoadedPolicy:
    own = layouts()[layout]
    return LoadedPolicy(name, f"{name}.pt", "torchscript", module or network(own.width), own, True, 1)


def grid(policies, arenas, *words: str) -> Inputs:
    """Return inputs; ``arenas`` are names or Arena objects."""
    cfg = compose_settings(words)
    found = tuple(arena if isinstance(arena, Arena) else find_arenas([arena], cfg)[0] for arena in arenas)
    return Inputs(SPOT, cfg, tuple(policies), found)


def part(inputs: Inputs, specs=None, folder: Path = Path("nowhere")) -> Part:
    return Part(inputs, inputs.specs if specs is None else specs, folder, "mujoco_cpu", "cpu")


def batch(inputs: Inputs, specs=None) -> Batch:
    return Batch(part(inputs, specs).scene, inputs.specs if specs is None else specs)


__all__ = ["POINTS", "SPOT", "STAND", "Scene", "Spec", "batch", "grid", "layouts", "network", "part", "policy"]
