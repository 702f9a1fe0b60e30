"""The backends under test, and how the tests build their robots."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import envcoder_bench
from envcoder_bench.sim import Simulator, make_simulator

TASKS = Path(envcoder_bench.__file__).parent / "tasks"
ANYMAL, CARTPOLE = TASKS / "anymal" / "anymal_c.xml", TASKS / "cartpole" / "cartpole.xml"
ANT, HUMANOID = TASKS / "ant" / "ant.xml", TASKS / "humanoid" / "humanoid.xml"
STANCE = [0.03, 0.4, -0.8, 0.03, -0.4, 0.8, -0.03, 0.4, -0.8, -0.03, -0.4, 0.8]  # rad, IsaacGymEnvs' default angles
KP, KD = 85.0, 2.0


@dataclass(frozen=True)
class Backend:
    """One simulator on one device; ``reproducible``: the same run gives the same bits."""

    name: str
    device: str
    reproducible: bool

    def anymal(self, num_envs: int = 4, dt: float = 0.02, substeps: int = 4) -> Simulator:
        return make_simulator(self.name, ANYMAL, num_envs, dt, substeps, self.device, stiffness=KP, damping=KD)

    def cartpole(self, num_envs: int = 2, dt: float = 0.0166, substeps: int = 2) -> Simulator:
        return make_simulator(self.name, CARTPOLE, num_envs, dt, substeps, self.device)

    def ant(self, num_envs: int = 3) -> Simulator:
        return make_simulator(self.name, ANT, num_envs, 0.0166, 2, self.device)

    def tensor(self, values) -> torch.Tensor:
        return torch.tensor(values, device=self.device)

    def assert_same(self, a: torch.Tensor, b: torch.Tensor) -> None:
        """Two runs of the same thing gave the same: to the bit where the backend is reproducible."""
        if self.reproducible:
            assert torch.equal(a, b)
        else:
            torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-2)


BACKENDS = [
    pytest.param(Backend("mujoco_cpu", "cpu", True), id="mujoco_cpu"),
    pytest.param(Backend("mujoco_warp", "cpu", True), id="mujoco_warp-cpu", marks=pytest.mark.slow),
    pytest.param(
        Backend("mujoco_warp", "cuda:0", False),  # sums by atomic additions, in no fixed order
        id="mujoco_warp-cuda",
        marks=[pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")],
    ),
]
both = pytest.mark.parametrize("backend", BACKENDS)
ON_WARPS_CPU_DEVICE = ("Anymal", "AllegroHand", "FrankaCubeStack")  # which takes long: the others on CUDA alone


def with_tasks(names: list[str]) -> list:
    """Parameters of a test: each task's name on each backend, on Warp's CPU device those of three tasks."""
    cpu, warp, cuda = BACKENDS
    return [
        pytest.param(name, *backend.values, id=f"{name}-{backend.id}", marks=backend.marks)
        for backend in (cpu, warp, cuda)
        for name in names
        if backend is not warp or name in ON_WARPS_CPU_DEVICE
    ]


def everywhere(sim: Simulator) -> torch.Tensor:
    return torch.ones(sim.num_envs, dtype=torch.bool, device=sim.device)


def stand(sim: Simulator, height: float = 0.56) -> torch.Tensor:
    """Put every ANYmal in its stance at rest, feet 1 cm above the ground; return the stance ``(num_envs, 12)``."""
    stance = torch.tensor(STANCE, device=sim.device).repeat(sim.num_envs, 1)
    root = torch.zeros(sim.num_envs, 13, device=sim.device)
    root[:, 2], root[:, 6] = height, 1.0
    sim.write(everywhere(sim), root, stance, torch.zeros_like(stance))
    return stance


def commands(sim: Simulator, steps: int, reach: float = 0.5, seed: int = 0) -> torch.Tensor:
    """Random targets about the stance, rad: ``(steps, num_envs, 12)``, the same for an environment in any batch."""
    noise = torch.stack(
        [torch.rand(steps, 12, generator=torch.Generator().manual_seed(seed + i)) for i in range(sim.num_envs)], dim=1
    )
    return (torch.tensor(STANCE) + reach * (2.0 * noise - 1.0)).to(sim.device)


def tensors(sim: Simulator) -> dict:
    """Copies of all public state tensors."""
    names = ("root_states", "dof_pos", "dof_vel", "dof_force", "contact_forces", "sensor_forces", "unstable")
    return {name: getattr(sim, name).clone() for name in names}
