"""Small scenes for the tests: files written here, and a simulation of a few environments."""

import numpy as np
import pytest
import torch

from isaacgym_mujoco.api import gymapi

gym = gymapi.acquire_gym()

cuda = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
ENGINES = ["cpu", pytest.param("warp", marks=pytest.mark.slow), pytest.param("cuda", marks=cuda)]


def words(values):
    return " ".join(map(str, values))


def link(name, mass=None, moments=(1.0, 1.0, 1.0), com=(0, 0, 0), shape="", at=(0, 0, 0)):
    """A link of a URDF, with an inertial if it has a mass; ``shape`` is the element of its collision shape."""
    text = ""
    if mass is not None:
        ixx, iyy, izz = moments
        text += f'<inertial><origin xyz="{words(com)}"/><mass value="{mass}"/>'
        text += f'<inertia ixx="{ixx}" iyy="{iyy}" izz="{izz}" ixy="0" ixz="0" iyz="0"/></inertial>'
    if shape:
        text += f'<collision><origin xyz="{words(at)}"/><geometry><{shape}/></geometry></collision>'
    return f'<link name="{name}">{text}</link>'


def joint(name, kind, parent, child, axis=(1, 0, 0), at=(0, 0, 0), more="", **limits):
    """A joint of a URDF; ``limits`` are lower, upper, effort and velocity."""
    text = f'<parent link="{parent}"/><child link="{child}"/><origin xyz="{words(at)}"/><axis xyz="{words(axis)}"/>'
    if limits:
        text += f"<limit {words(f'{key}={str(value)!r}' for key, value in limits.items())}/>"
    return f'<joint name="{name}" type="{kind}">{text}{more}</joint>'


def robot(*parts):
    return f'<robot name="robot">{"".join(parts)}</robot>'


# links in an order that is neither theirs nor alphabetical; joints are declared against the sorted order
TREE = robot(
    link("base", 2),
    link("z_arm", shape='box size="0.1 0.2 0.3"'),
    link("a_arm", shape='sphere radius="0.1"'),
    link("tip", 3, (0.3, 0.2, 0.1), com=(0, 0, 0.5)),
    link("pad", 1, (0.1, 0.1, 0.1)),
    joint("j_z", "revolute", "base", "z_arm", (0, 0, 1), (1, 0, 0), '<dynamics damping="0.5" friction="0.25"/>',
          lower=-1, upper=2, effort=7, velocity=3),
    joint("j_a", "prismatic", "base", "a_arm", lower=0.1, upper=0.4, effort=9, velocity=2),
    '<joint name="weld" type="fixed"><parent link="a_arm"/><child link="tip"/>'
    '<origin xyz="0 0 1" rpy="0 1.5707963267948966 0"/></joint>',
    '<joint name="keep" type="fixed" dont_collapse="true"><parent link="z_arm"/><child link="pad"/>'
    '<origin xyz="0 0 2"/></joint>',
)  # fmt: skip

# one hinge at the origin about y, a point-like bob 0.5 m below it
PENDULUM = robot(
    link("base"), link("bob", 2, [0.001] * 3, (0, 0, -0.5)), joint("hinge", "continuous", "base", "bob", (0, 1, 0))
)


def slider(mass=2, lower=-100, effort=50):
    """A mass on a slide along x."""
    rail = joint("rail", "prismatic", "base", "cart", lower=lower, upper=100, effort=effort, velocity=1000)
    return robot(link("base"), link("cart", mass), rail)


SLIDER = slider()

# a finger of 20 g on a slide along x, whose face is 1 cm before its origin
FINGER = robot(
    link("base"),
    link("tip", 0.02, [1e-5] * 3, shape='box size="0.02 0.04 0.04"'),
    joint("rail", "prismatic", "base", "tip", lower=-1, upper=1, effort=200, velocity=0.2),
)
FINGER_ON_HINGE = robot(
    link("base"),
    link("finger", 0.5, [0.02] * 3),
    joint("hinge", "revolute", "base", "finger", (0, 1, 0), lower=-3, upper=3, effort=12, velocity=100),
)

# a floating body whose centre of mass lies 0.2 m off its origin
LOPSIDED = robot(link("body", 1.5, (0.01, 0.02, 0.03), (0.2, 0, 0)))

_ARM = (
    link("upper", 2, (0.01, 0.03, 0.03), (0.2, 0.05, 0)),
    link("lower", 1, (0.01, 0.02, 0.02), (0.1, 0, 0.1)),
    joint("j1", "continuous", "base", "upper", (0, 0, 1)),
    joint("j2", "continuous", "upper", "lower", (0, 1, 0), at=(0.4, 0, 0)),
)
ARM = robot(link("base"), *_ARM)
FREE_ARM = robot(link("base", 3, (0.1, 0.2, 0.2), (0.1, 0, 0.05)), *_ARM)


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


# triangles of a box whose corners are those of ``corners``, counted from 1
BOX = [(1, 3, 4), (1, 4, 2), (5, 6, 8), (5, 8, 7), (1, 2, 6), (1, 6, 5)]
BOX += [(3, 7, 8), (3, 8, 4), (1, 5, 7), (1, 7, 3), (2, 4, 8), (2, 8, 6)]


def boxes_obj(*boxes):
    """An .obj of boxes, each by its lowest and its highest corner."""
    lines = [f"v {x} {y} {z}" for box in boxes for x, y, z in corners(*box)]
    lines += [f"f {a + 8 * k} {b + 8 * k} {c + 8 * k}" for k in range(len(boxes)) for a, b, c in BOX]
    return "\n".join(lines)


def dae(scene, points, extra="", faces=None):
    """A Collada file, in cm, of the mesh ``g``; ``scene`` are its nodes, ``extra`` other libraries.

    Without ``faces`` the points, ``(n, 3)``, are the corners of a box.
    """
    columns = "".join(f'<param name="{name}" type="float"/>' for name in "XYZ")
    accessor = f'<accessor source="#f" count="{len(points)}" stride="3">{columns}</accessor>'
    numbers = f'<float_array id="f" count="{points.size}">{words(points.ravel())}</float_array>'
    source = f'<source id="p">{numbers}<technique_common>{accessor}</technique_common></source>'
    vertices = '<vertices id="v"><input semantic="POSITION" source="#p"/></vertices>'
    if faces is None:
        index = words(corner - 1 for triangle in BOX for corner in triangle)
        faces = f'<triangles><input semantic="VERTEX" source="#v" offset="0"/><p>{index}</p></triangles>'
    return (
        '<COLLADA xmlns="http://www.collada.org/2005/11/COLLADASchema"><asset><unit meter="0.01"/></asset>'
        f'<library_geometries><geometry id="g"><mesh>{source}{vertices}{faces}</mesh></geometry></library_geometries>'
        f'{extra}<library_visual_scenes><visual_scene id="s">{scene}</visual_scene></library_visual_scenes>'
        '<scene><instance_visual_scene url="#s"/></scene></COLLADA>'
    )


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


on_warp = pytest.mark.parametrize("engine", ENGINES[1:], indirect=True)
on_all = pytest.mark.parametrize("engine", ENGINES, indirect=True)
