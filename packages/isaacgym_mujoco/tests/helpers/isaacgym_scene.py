"""Small scenes for the tests: files written here, and a simulation of a few environments."""

import numpy as np
import pytest
import torch

from isaacgym_mujoco.api import gymapi

gym = gymapi.acquire_gym()

cuda = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
ENGINES = ["cpu", pytest.param("warp", marks=pytest.mark.slow), pytest.param("cuda", marks=cuda)]

# links in an order that is neither theirs nor alphabetical; joints are declared against the sorted order
TREE = """
<robot name="tree">
  <link name="base"><inertial><mass value="2"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
    </link>
  <link name="z_arm"><collision><geometry><box size="0.1 0.2 0.3"/></geometry></collision></link>
  <link name="a_arm"><collision><geometry><sphere radius="0.1"/></geometry></collision></link>
  <link name="tip">
    <inertial><origin xyz="0 0 0.5"/><mass value="3"/>
    <inertia ixx="0.3" iyy="0.2" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial>
  </link>
  <link name="pad"><inertial><mass value="1"/><inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/>
    </inertial></link>
  <joint name="j_z" type="revolute">
    <parent link="base"/><child link="z_arm"/><origin xyz="1 0 0"/><axis xyz="0 0 1"/>
    <limit lower="-1" upper="2" effort="7" velocity="3"/><dynamics damping="0.5" friction="0.25"/>
  </joint>
  <joint name="j_a" type="prismatic">
    <parent link="base"/><child link="a_arm"/><axis xyz="1 0 0"/>
    <limit lower="0.1" upper="0.4" effort="9" velocity="2"/>
  </joint>
  <joint name="weld" type="fixed"><parent link="a_arm"/><child link="tip"/>
    <origin xyz="0 0 1" rpy="0 1.5707963267948966 0"/></joint>
  <joint name="keep" type="fixed" dont_collapse="true"><parent link="z_arm"/><child link="pad"/><origin xyz="0 0 2"/>
    </joint>
</robot>
"""

# one hinge at the origin about y, a point-like bob 0.5 m below it
PENDULUM = """
<robot name="pendulum">
  <link name="base"/>
  <link name="bob"><inertial><origin xyz="0 0 -0.5"/><mass value="2"/>
    <inertia ixx="0.001" iyy="0.001" izz="0.001" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="hinge" type="continuous"><parent link="base"/><child link="bob"/><axis xyz="0 1 0"/></joint>
</robot>
"""

# a mass of 2 kg on a slide along x; effort limit 50 N
SLIDER = """
<robot name="slider">
  <link name="base"/>
  <link name="cart"><inertial><mass value="2"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
    </link>
  <joint name="rail" type="prismatic"><parent link="base"/><child link="cart"/><axis xyz="1 0 0"/>
    <limit lower="-100" upper="100" effort="50" velocity="1000"/></joint>
</robot>
"""

# a finger of 20 g on a slide along x, whose face is 1 cm before its origin
FINGER = """
<robot name="finger">
  <link name="base"/>
  <link name="tip"><inertial><mass value="0.02"/>
    <inertia ixx="1e-5" iyy="1e-5" izz="1e-5" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision><geometry><box size="0.02 0.04 0.04"/></geometry></collision></link>
  <joint name="rail" type="prismatic"><parent link="base"/><child link="tip"/><axis xyz="1 0 0"/>
    <limit lower="-1" upper="1" effort="200" velocity="0.2"/></joint>
</robot>
"""

# a floating body whose centre of mass lies 0.2 m off its origin
LOPSIDED = """
<robot name="lopsided">
  <link name="body"><inertial><origin xyz="0.2 0 0"/><mass value="1.5"/>
    <inertia ixx="0.01" iyy="0.02" izz="0.03" ixy="0" ixz="0" iyz="0"/></inertial></link>
</robot>
"""

ARM = """
<robot name="arm">
  <link name="base"/>
  <link name="upper"><inertial><origin xyz="0.2 0.05 0"/><mass value="2"/>
    <inertia ixx="0.01" iyy="0.03" izz="0.03" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="lower"><inertial><origin xyz="0.1 0 0.1"/><mass value="1"/>
    <inertia ixx="0.01" iyy="0.02" izz="0.02" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="j1" type="continuous"><parent link="base"/><child link="upper"/><axis xyz="0 0 1"/></joint>
  <joint name="j2" type="continuous"><parent link="upper"/><child link="lower"/><origin xyz="0.4 0 0"/>
    <axis xyz="0 1 0"/></joint>
</robot>
"""

# a base with a mass, for ARM
BASE = """<link name="base"><inertial><origin xyz="0.1 0 0.05"/><mass value="3"/>
  <inertia ixx="0.1" iyy="0.2" izz="0.2" ixy="0" ixz="0" iyz="0"/></inertial></link>"""


def options(**values):
    made = gymapi.AssetOptions()
    made.angular_damping = 0.0
    for name, value in values.items():
        setattr(made, name, value)
    return made


def load(folder, text, **values):
    """An asset from a text, written to a file as a task would have it."""
    name = "asset.urdf" if text.lstrip().startswith("<robot") else "asset.xml"
    (folder / name).write_text(text)
    return gym.load_asset(None, str(folder), name, options(**values))


def pose(x=0.0, y=0.0, z=0.0):
    return gymapi.Transform(gymapi.Vec3(x, y, z))


def corners(low, high):
    """The corners of a box, ``(8, 3)``."""
    return np.array([[(low, high)[k >> axis & 1][axis] for axis in range(3)] for k in range(8)], dtype=float)


def boxes_obj(*boxes):
    """An .obj of boxes, each by its lowest and its highest corner."""
    faces = [(1, 3, 4), (1, 4, 2), (5, 6, 8), (5, 8, 7), (1, 2, 6), (1, 6, 5)]
    faces += [(3, 7, 8), (3, 8, 4), (1, 5, 7), (1, 7, 3), (2, 4, 8), (2, 8, 6)]
    lines = [f"v {x} {y} {z}" for box in boxes for x, y, z in corners(*box)]
    lines += [f"f {a + 8 * k} {b + 8 * k} {c + 8 * k}" for k in range(len(boxes)) for a, b, c in faces]
    return "\n".join(lines)


class Scene:
    """``num_envs`` environments; ``actors`` are (asset, pose) or (asset, pose, group, filter).

    An asset, or a pose, may be a function of the environment's index. ``ground`` is True for a plane, or a function
    that adds another ground to the simulation. ``before`` is called with each environment before the scene is compiled.
    """

    device = "cpu"

    def __init__(
        self,
        *actors,
        num_envs=2,
        dt=0.01,
        substeps=1,
        gravity=-9.81,
        ground=False,
        friction=1.0,
        props=None,
        depenetration=100.0,
        before=lambda env: None,
    ):
        params = gymapi.SimParams()
        params.physx.max_depenetration_velocity = depenetration
        params.dt, params.substeps, params.gravity = dt, substeps, gymapi.Vec3(0, 0, gravity)
        params.use_gpu_pipeline = self.device != "cpu"
        self.sim = gym.create_sim(0, -1, gymapi.SIM_PHYSX, params)
        if callable(ground):
            ground(self.sim)
        elif ground:
            plane = gymapi.PlaneParams()
            plane.normal, plane.dynamic_friction = gymapi.Vec3(0, 0, 1), friction
            gym.add_ground(self.sim, plane)
        self.envs = []
        for index in range(num_envs):
            env = gym.create_env(self.sim, gymapi.Vec3(-1, -1, 0), gymapi.Vec3(1, 1, 1), 2)
            for number, (asset, place, *group) in enumerate(actors):
                asset, place = (x(index) if callable(x) else x for x in (asset, place))
                gym.create_actor(env, asset, place, f"actor{number}", *(group or (index, 0)))
                if props is not None and len(asset.dof_names):
                    rows = gym.get_asset_dof_properties(asset)
                    for name, value in props.items():
                        rows[name] = value
                    gym.set_actor_dof_properties(env, number, rows)
            before(env)
            self.envs.append(env)
        gym.prepare_sim(self.sim)
        self.root = gym.acquire_actor_root_state_tensor(self.sim)
        self.dof = gym.acquire_dof_state_tensor(self.sim)
        self.bodies = gym.acquire_rigid_body_state_tensor(self.sim)
        self.contacts = gym.acquire_net_contact_force_tensor(self.sim)

    def step(self, count=1, effort=None, target=None):
        for _ in range(count):
            if effort is not None:
                gym.set_dof_actuation_force_tensor(self.sim, self.dofs_full(effort))
            if target is not None:
                gym.set_dof_position_target_tensor(self.sim, self.dofs_full(target))
            gym.simulate(self.sim)
        self.refresh()

    def tensor(self, values):
        return torch.tensor(values, dtype=torch.float32, device=self.device)

    def dofs_full(self, value):
        return self.tensor([float(value)] * len(self.dof))

    def refresh(self):
        gym.refresh_actor_root_state_tensor(self.sim)
        gym.refresh_dof_state_tensor(self.sim)
        gym.refresh_rigid_body_state_tensor(self.sim)
        gym.refresh_net_contact_force_tensor(self.sim)

    def set_roots(self, states, actors=None):
        ids = torch.arange(len(self.root)) if actors is None else torch.tensor(actors)
        ids = ids.to(self.device)
        gym.set_actor_root_state_tensor_indexed(self.sim, states, ids.to(torch.int32), len(ids))

    def set_dofs(self, position, velocity=0.0):
        self.dof[:, 0], self.dof[:, 1] = position, velocity
        ids = torch.arange(len(self.root), dtype=torch.int32, device=self.device)
        gym.set_dof_state_tensor_indexed(self.sim, self.dof, ids, len(ids))


def ball(**values):
    return gym.create_sphere(None, 0.1, options(**values))


def box(**values):
    return gym.create_box(None, 0.2, 0.2, 0.2, options(**values))


FINGER_ON_HINGE = """
<robot name="hinged"><link name="base"/><link name="finger"><inertial><mass value="0.5"/>
  <inertia ixx="{inertia}" iyy="{inertia}" izz="{inertia}" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="hinge" type="revolute"><parent link="base"/><child link="finger"/><axis xyz="0 1 0"/>
<limit lower="-3" upper="3" effort="12" velocity="100"/></joint></robot>
"""

on_warp = pytest.mark.parametrize("engine", ENGINES[1:], indirect=True)
on_all = pytest.mark.parametrize("engine", ENGINES, indirect=True)
