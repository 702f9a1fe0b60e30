"""An arm of seven joints with its Jacobian and mass matrix, and an operational space controller for it."""

import math

import torch
from shaping_fakes import FakeTask
from torch import Tensor

# Franka Emika Panda, modified Denavit-Hartenberg parameters (a, d, alpha) of joints 1..7 and the flange:
# https://frankaemika.github.io/docs/control_parameters.html
LINKS = (
    (0.0, 0.333, 0.0), (0.0, 0.0, -math.pi / 2), (0.0, 0.316, math.pi / 2), (0.0825, 0.0, math.pi / 2),
    (-0.0825, 0.384, -math.pi / 2), (0.0, 0.0, math.pi / 2), (0.088, 0.0, math.pi / 2), (0.0, 0.107, 0.0),
)  # fmt: skip
MASS, INERTIA, ARMATURE = 2.5, 0.02, 0.1  # of every link, kg and kg m^2; of every joint, kg m^2
REST = torch.tensor([0.0, 0.1963, 0.0, -2.6180, 0.0, 2.9416, 0.7854])
LIMITS = torch.tensor([87.0, 87.0, 87.0, 87.0, 12.0, 12.0, 12.0])

# the controller of Khatib (1987) with a posture in the null space, as IsaacGymEnvs' FrankaCubeStack has it
CONTROLLER = """
ACTION_DIM = 6
KP, KP_NULL = 150.0, 10.0

def compute_torque(action, q, qd, eef_vel, jacobian, mass_matrix, rest_q, effort_limit):
    turned = torch.transpose(jacobian, 1, 2)
    mass_inverse = torch.inverse(mass_matrix)
    eef_mass = torch.inverse(jacobian @ mass_inverse @ turned)
    wrench = KP * 0.1 * action - 2 * KP ** 0.5 * eef_vel
    torque = turned @ eef_mass @ wrench.unsqueeze(-1)
    jacobian_inverse = eef_mass @ jacobian @ mass_inverse
    posture = KP_NULL * ((rest_q - q + math.pi) % (2 * math.pi) - math.pi) - 2 * KP_NULL ** 0.5 * qd
    posture = mass_matrix @ posture.unsqueeze(-1)
    torque = torque + (torch.eye(7, device=q.device).unsqueeze(0) - turned @ jacobian_inverse) @ posture
    return torch.clamp(torque.squeeze(-1), -effort_limit, effort_limit)
"""


def kinematics(q: Tensor) -> tuple[Tensor, Tensor]:
    """The flange's Jacobian ``(n, 6, 7)`` and the mass matrix ``(n, 7, 7)`` of configurations ``(n, 7)``, in double."""
    q, n = q.double(), q.shape[0]
    frame = torch.eye(4, dtype=torch.float64).expand(n, 4, 4)
    places: list[Tensor] = []
    axes: list[Tensor] = []
    for i, (a, d, alpha) in enumerate(LINKS):
        angle = q[:, i] if i < 7 else torch.zeros(n, dtype=torch.float64)
        c, s, ca, sa = angle.cos(), angle.sin(), math.cos(alpha), math.sin(alpha)
        zero, one = torch.zeros_like(c), torch.ones_like(c)
        rows = [
            [c, -s, zero, a * one], [s * ca, c * ca, -sa * one, -sa * d * one],
            [s * sa, c * sa, ca * one, ca * d * one], [zero, zero, zero, one],
        ]  # fmt: skip
        frame = frame @ torch.stack([torch.stack(row, -1) for row in rows], 1)
        places.append(frame[:, :3, 3])
        axes.append(frame[:, :3, 2])

    def jacobian(k: int) -> Tensor:
        columns = [
            torch.cat((torch.linalg.cross(axes[i], places[k] - places[i]), axes[i]), -1) * float(i <= k)
            for i in range(7)
        ]
        return torch.stack(columns, -1)

    weights = torch.tensor([MASS] * 3 + [INERTIA] * 3, dtype=torch.float64).diag()
    mass = sum(jacobian(k).mT @ weights @ jacobian(k) for k in range(1, 8))
    return jacobian(7), mass + ARMATURE * torch.eye(7, dtype=torch.float64)


class ArmTask(FakeTask):
    """The arm, whose joints follow the torque; environments begin around the arm's rest."""

    num_dofs = 7

    def __init__(self, num_envs: int, device: str = "cpu", action_dim: int | None = 7, n: int | None = None) -> None:
        super().__init__(num_envs, device, action_dim, n)
        g = torch.Generator().manual_seed(0)
        noise = torch.randn(n or num_envs, 14, generator=g).repeat(num_envs // (n or num_envs), 1)
        self.state.update(dof_pos=REST + 0.2 * noise[:, :7], dof_vel=0.3 * noise[:, 7:])
        self.default_state = {key: self.state[key] for key in ("root_states", "dof_pos", "dof_vel")}
        self.constants = {"rest_q": REST, "effort_limit": LIMITS}
        self._derive()

    def _derive(self) -> None:
        q, qd = self.state["dof_pos"], self.state["dof_vel"]
        jacobian, mass = kinematics(q)
        eef_vel = (jacobian @ qd.double().unsqueeze(-1)).squeeze(-1)
        own: dict[str, Tensor] = dict(q=q, qd=qd, eef_vel=eef_vel, jacobian=jacobian, mass_matrix=mass)
        for key, x in own.items():
            self.state.setdefault(key, torch.empty_like(x, dtype=torch.float32)).copy_(x)

    def default_dof_target(self, action: Tensor, state: dict[str, Tensor]) -> Tensor:
        return action

    def step(self, command: Tensor) -> None:
        self.state["dof_vel"].mul_(0.9).add_(0.001 * command)
        self.state["dof_pos"].add_(0.02 * self.state["dof_vel"])
        self._derive()
