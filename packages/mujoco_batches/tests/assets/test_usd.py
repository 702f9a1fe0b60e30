"""Robots of USD files are those of a model whose numbers are known: by a writer of this file, and by hand."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

from math import pi
from types import SimpleNamespace

import mujoco
import numpy as np
import pytest

from mujoco_batches.assets import usd
from mujoco_batches.assets.asset import Asset, load
from mujoco_batches.assets.urdf import AssetError
from mujoco_batches.scene.params import AssetOptions

pxr = pytest.importorskip("pxr", reason="usd-core is not installed")

HEAD = '#usda 1.0\n(\n defaultPrim = "robot"\n metersPerUnit = {meters}\n upAxis = "Z"\n)\n'


def read(tmp_path, text, meters=1):
    """Return the asset of a USD's text."""
    (tmp_path / "robot.usda").write_text(HEAD.format(meters=meters) + text)
    return load(str(tmp_path), "robot.usda", AssetOptions())


def prim(kind, name, content="", apis=""):
    schemas = ", ".join(f'"{api}"' for api in apis.split())
    applied = f"(prepend apiSchemas = [{schemas}])" if apis else ""
    return f'def {kind} "{name}" {applied}\n{{\n{content}\n}}\n'


def body(name, content="", apis=""):
    return prim("Xform", name, content, f"PhysicsRigidBodyAPI {apis}")


def shape(kind, name="shape", content="", apis=""):
    return prim(kind, name, content, f"PhysicsCollisionAPI {apis}")


def joint(kind, name, first, second, content=""):
    sides = [f"rel physics:body{k} = </robot/{path}>\n" for k, path in enumerate((first, second)) if path]
    return prim(f"Physics{kind}Joint", name, "".join(sides) + content)


def robot(*parts, apis="PhysicsArticulationRootAPI"):
    return prim("Xform", "robot", "".join(parts), apis)


ARM = robot(
    body("base", shape("Cube", "shape", "double size = 2")),
    body("link", shape("Sphere", "shape", "double radius = 1")),
    joint("Revolute", "hinge", "base", "link", 'uniform token physics:axis = "Z"'),
)


# a model, written as USD with other frames


def random_model(rng):
    """Return a model of a floating tree with hinges, slides and fixed bodies in any frames."""
    spec = mujoco.MjSpec()
    parents = [spec.worldbody]
    for k in range(9):
        parent = parents[0] if k == 0 else parents[rng.integers(1, len(parents))]
        part = parent.add_body(name=f"b{k}", pos=rng.normal(size=3), quat=[1, 0, 0, 0] if k == 0 else unit(rng, 4))
        if k == 0:
            part.add_freejoint()
        elif k % 4:
            kind = mujoco.mjtJoint.mjJNT_HINGE if rng.random() < 0.6 else mujoco.mjtJoint.mjJNT_SLIDE
            part.add_joint(
                name=f"j{k}", type=kind, axis=unit(rng, 3), pos=rng.normal(size=3), range=[-rng.random(), rng.random()]
            )
        part.explicitinertial = True
        part.mass, part.ipos = rng.uniform(1, 2), rng.normal(size=3)
        part.inertia, part.iquat = rng.uniform(1, 1.9, size=3), unit(rng, 4)
        parents.append(part)
    spec.compiler.degree, spec.compiler.autolimits = False, True
    return spec.compile()


def unit(rng, count):
    values = rng.normal(size=count)
    return values / np.linalg.norm(values)


def frame(position, quat):
    matrix, turn = np.eye(4), np.empty(9)
    mujoco.mju_quat2Mat(turn, np.asarray(quat, dtype=float))
    matrix[:3, :3], matrix[:3, 3] = turn.reshape(3, 3), position
    return matrix


def quat_of(matrix):
    quat = np.empty(4)
    mujoco.mju_mat2Quat(quat, matrix[:3, :3].flatten())
    return quat


def numbers(values):
    return "(" + ", ".join(repr(float(v)) for v in values) + ")"


def write(model, rng, meters):
    """Return a USD of a model: links beside each other with scales of their own, joints with any frames and order."""
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    parts, scales = [], rng.uniform(0.5, 2.0, size=(model.nbody, 3))
    for b in range(1, model.nbody):
        place = f"""double3 xformOp:translate = {numbers(data.xpos[b] / meters)}
            quatd xformOp:orient = {numbers(data.xquat[b])}
            double3 xformOp:scale = {numbers(scales[b])}
            uniform token[] xformOpOrder = ["xformOp:translate", "xformOp:orient", "xformOp:scale"]
            float physics:mass = {model.body_mass[b]}
            point3f physics:centerOfMass = {numbers(model.body_ipos[b] / scales[b] / meters)}
            float3 physics:diagonalInertia = {numbers(model.body_inertia[b] / meters**2)}
            quatf physics:principalAxes = {numbers(model.body_iquat[b])}"""
        parts.append(body(model.body(b).name, place, "PhysicsMassAPI" + " PhysicsArticulationRootAPI" * (b == 1)))
    for b in range(2, model.nbody):
        j = int(model.body_jntadr[b])
        swapped, token = bool(rng.integers(2)), int(rng.integers(3))
        axis = np.zeros(3) if j < 0 else model.jnt_axis[j] * (-1 if swapped else 1)
        # a frame whose token-th axis is the joint's
        turn = frame(np.zeros(3), unit(rng, 4))[:3, :3]
        if j >= 0:
            others = np.linalg.svd(axis[None])[2][1:]
            turn = np.roll(np.array([axis, *others]), token, axis=0).T
            turn[:, (token + 1) % 3] *= np.linalg.det(turn)
        own = np.eye(4)
        own[:3, :3], own[:3, 3] = turn, rng.normal(size=3) if j < 0 else model.jnt_pos[j]
        parent = int(model.body_parentid[b])
        sides = [(parent, frame(model.body_pos[b], model.body_quat[b]) @ own), (b, own)]
        text = f'uniform token physics:axis = "{"XYZ"[token]}"\n'
        for k, (owner, pose) in enumerate(sides[::-1] if swapped else sides):
            text += f"point3f physics:localPos{k} = {numbers(pose[:3, 3] / scales[owner] / meters)}\n"
            text += f"quatf physics:localRot{k} = {numbers(quat_of(pose))}\n"
        hinge = j >= 0 and model.jnt_type[j] == mujoco.mjtJoint.mjJNT_HINGE
        if j >= 0:
            low, high = model.jnt_range[j] * (180 / pi if hinge else 1 / meters)
            text += f"float physics:lowerLimit = {low}\nfloat physics:upperLimit = {high}\n"
        kind = "Fixed" if j < 0 else "Revolute" if hinge else "Prismatic"
        names = [model.body(owner).name for owner, _ in sides]
        parts.append(joint(kind, f"f{b}" if j < 0 else model.joint(j).name, *(names[::-1] if swapped else names), text))
    order = rng.permutation(len(parts))
    return robot(*(parts[k] for k in order), apis="")


@pytest.mark.parametrize(("seed", "meters"), [(0, 1.0), (1, 0.01), (2, 1.0), (3, 0.01)])
def test_a_robot_moves_and_weighs_as_the_model_that_its_file_was_written_of(tmp_path, seed, meters):
    rng = np.random.default_rng(seed)
    truth = random_model(rng)
    asset = read(tmp_path, write(truth, rng, meters), meters)
    model, names = asset.model, [truth.body(b).name for b in range(1, truth.nbody)]
    assert sorted(asset.body_names) == sorted(names) and not asset.fixed
    joints = [truth.joint(j).name for j in range(1, truth.njnt)]
    assert sorted(asset.dof_names) == sorted(joints)
    for name in joints:
        np.testing.assert_allclose(model.joint(name).range, truth.joint(name).range, atol=1e-6)
    for _ in range(3):
        base, q = np.r_[rng.normal(size=3), unit(rng, 4)], rng.uniform(-2, 2, size=len(joints))
        seen = []
        for m in (truth, model):
            data, adrs = mujoco.MjData(m), [m.joint(name) for name in joints]
            data.qpos[:7], data.qpos[[int(a.qposadr[0]) for a in adrs]] = base, q
            mujoco.mj_forward(m, data)
            dofs, bodies = [*range(6), *(int(a.dofadr[0]) for a in adrs)], [m.body(name).id for name in names]
            matrix = np.zeros((m.nv, m.nv))
            mujoco.mj_fullM(m, data, matrix)
            seen.append((data.xpos[bodies], data.xipos[bodies], data.xmat[bodies], matrix[np.ix_(dofs, dofs)]))
        for a, b in zip(*seen):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-6 * max(1.0, abs(a).max()))


# numbers by hand


def test_missing_masses_are_those_of_the_shapes_as_in_physx(tmp_path):
    """A density of a shape comes before its body's, and this before 1000 kg/m^3; a mass scales the inertia."""
    box = 'double size = 1\ndouble3 xformOp:scale = (0.2, 0.4, 0.6)\nuniform token[] xformOpOrder = ["xformOp:scale"]'
    volume = 0.2 * 0.4 * 0.6
    places = 'double3 xformOp:translate = (0, 0, 0.5)\nuniform token[] xformOpOrder = ["xformOp:translate"]'
    ball = f"double radius = 0.1\n{places}"
    asset = read(
        tmp_path,
        robot(
            body("water", shape("Cube", "shape", box)),
            body("wood", shape("Cube", "shape", box) + "float physics:density = 500", "PhysicsMassAPI"),
            body(
                "both",
                shape("Cube", "a", box + "\nfloat physics:density = 100", "PhysicsMassAPI")
                + shape("Sphere", "b", ball + "\nfloat physics:mass = 3", "PhysicsMassAPI")
                + "float physics:density = 500",
                "PhysicsMassAPI",
            ),
            body("given", shape("Cube", "shape", box) + "float physics:mass = 6", "PhysicsMassAPI"),
            body(
                "moved",
                shape("Cube", "shape", box) + "float physics:mass = 6\npoint3f physics:centerOfMass = (0, 0, 1)",
                "PhysicsMassAPI",
            ),
            body("nothing"),
            *(joint("Fixed", f"to_{name}", "water", name) for name in ("wood", "both", "given", "moved", "nothing")),
        ),
    )
    masses = {b.name: b for b in map(asset.model.body, range(2, asset.model.nbody))}
    root = asset.model.body("water")
    assert float(root.mass[0]) == pytest.approx(1000 * volume)
    assert float(masses["wood"].mass[0]) == pytest.approx(500 * volume)
    both = masses["both"]
    assert float(both.mass[0]) == pytest.approx(100 * volume + 3)
    assert both.ipos[2] == pytest.approx(0.5 * 3 / (100 * volume + 3))
    moments = 6 / 12 * np.array([0.4**2 + 0.6**2, 0.2**2 + 0.6**2, 0.2**2 + 0.4**2])
    np.testing.assert_allclose(masses["given"].inertia, np.sort(moments)[::-1], rtol=1e-6)
    # Steiner about the centre that the file gives, as omni.physx does
    np.testing.assert_allclose(masses["moved"].inertia, np.sort(moments + np.array([6, 6, 0]))[::-1], rtol=1e-6)
    assert float(masses["nothing"].mass[0]) == 1.0
    np.testing.assert_allclose(masses["nothing"].inertia, [0.004] * 3, rtol=1e-6)


def test_joints_have_drives_limits_and_physx_properties_in_radians(tmp_path):
    drive = """float physics:lowerLimit = -90
        float physics:upperLimit = 180
        float drive:angular:physics:stiffness = 2
        float drive:angular:physics:damping = 0.1
        float drive:angular:physics:maxForce = 30
        float physxJoint:armature = 0.02
        float physxJoint:jointFriction = 0.3
        float physxJoint:maxJointVelocity = 360"""
    slide = "float physics:lowerLimit = -5\nfloat physics:upperLimit = 20\nfloat drive:linear:physics:stiffness = 7"
    asset = read(
        tmp_path,
        robot(
            *map(body, ("base", "a", "b", "c")),
            joint("Revolute", "turn", "base", "a", drive),
            joint("Prismatic", "push", "a", "b", slide),
            joint("Revolute", "spin", "b", "c"),
        ),
        meters=0.01,
    )
    turn, push, spin = asset.dof_properties
    assert asset.dof_names == ["turn", "push", "spin"]
    assert (turn["lower"], turn["upper"]) == pytest.approx((-pi / 2, pi))
    # N m per degree and N, of a file in centimetres
    square = 0.01**2
    assert turn["stiffness"] == pytest.approx(2 * 180 / pi * square)
    assert turn["damping"] == pytest.approx(0.1 * 180 / pi * square)
    assert (turn["effort"], turn["armature"]) == pytest.approx((30 * square, 0.02 * square))
    assert (turn["friction"], turn["velocity"]) == pytest.approx((0.3, 2 * pi))
    assert (push["lower"], push["upper"], push["stiffness"]) == pytest.approx((-0.05, 0.2, 7))
    assert not spin["hasLimits"]


def test_shapes_are_scaled_turned_and_approximated(tmp_path):
    """The collision API may be on a prim above the shapes, as Isaac Sim's importers write it, which are instances."""
    up = 'uniform token[] xformOpOrder = ["xformOp:scale"]'
    box = "[(0, 0, 0), (2, 0, 0), (0, 4, 0), (0, 0, 6), (2, 4, 6)]"
    mesh = f"point3f[] points = {box}\nint[] faceVertexCounts = [3]\nint[] faceVertexIndices = [0, 1, 2]"
    content = (
        'def Xform "collisions" (\n instanceable = true\n references = </shapes>\n'
        ' prepend apiSchemas = ["PhysicsCollisionAPI"]\n)\n{\n}\n'
        + 'def Xform "visuals"\n{\n def Cube "seen"\n {\n }\n}\n'
        + shape("Cube", "off", "bool physics:collisionEnabled = 0")
        + shape(
            "Mesh", "cube", mesh + '\nuniform token physics:approximation = "boundingCube"', "PhysicsMeshCollisionAPI"
        )
        + shape("Mesh", "hull", mesh)
    )
    capsule = 'def Capsule "pill"\n{\n uniform token axis = "X"\n double height = 2\n double radius = 0.5\n}\n'
    ball = f'def Sphere "ball"\n{{\n double radius = 1\n double3 xformOp:scale = (2, 3, 1)\n {up}\n}}\n'
    asset = read(
        tmp_path,
        robot(body("base", f"double3 xformOp:scale = (0.5, 0.5, 0.5)\n{up}\n{content}"))
        + f'class Xform "shapes"\n{{\n{capsule}{ball}}}\n',
    )
    model, kinds = asset.model, mujoco.mjtGeom
    geoms = {int(model.geom_type[g]): g for g in range(model.ngeom)}
    assert model.ngeom == 4  # neither what is seen nor what does not collide
    pill, round_, cube, hull = (
        geoms[int(k)] for k in (kinds.mjGEOM_CAPSULE, kinds.mjGEOM_SPHERE, kinds.mjGEOM_BOX, kinds.mjGEOM_MESH)
    )
    np.testing.assert_allclose(model.geom_size[pill, :2], [0.25, 0.5])
    assert abs(frame([0] * 3, model.geom_quat[pill])[:3, 2]) == pytest.approx([1, 0, 0], abs=1e-9)
    assert model.geom_size[round_, 0] == pytest.approx(1.5)  # the largest scale
    np.testing.assert_allclose(model.geom_size[cube], [0.5, 1, 1.5])
    np.testing.assert_allclose(model.geom_pos[cube], [0.5, 1, 1.5])
    points = model.mesh_vert @ frame([0] * 3, model.geom_quat[hull])[:3, :3].T + model.geom_pos[hull]
    np.testing.assert_allclose([points.min(axis=0), points.max(axis=0)], [[0] * 3, [1, 2, 3]], atol=1e-6)


@pytest.mark.parametrize(("asked", "pairs"), [(None, 3), (True, 1), (False, 3)])
def test_what_does_not_collide_is_excluded(tmp_path, asked, pairs):
    text = robot(
        body("a", "rel physics:filteredPairs = </robot/c>", "PhysicsFilteredPairsAPI"),
        *map(body, ("b", "c")),
        joint("Revolute", "first", "a", "b"),
        joint("Revolute", "second", "b", "c"),
        "bool physxArticulation:enabledSelfCollisions = 0",
    )
    (tmp_path / "robot.usda").write_text(HEAD.format(meters=1) + text)
    spec, _ = usd.build(usd.read(tmp_path / "robot.usda"), AssetOptions(), asked)
    assert spec.compile().nexclude == pairs


def test_a_root_is_fixed_by_a_joint_to_the_world(tmp_path):
    for text, fixed in ((ARM, False), (ARM[:-2] + joint("Fixed", "root_joint", "", "base") + "}\n", True)):
        (tmp_path / "robot.usda").write_text(HEAD.format(meters=1) + text)
        assert usd.read(tmp_path / "robot.usda").fixed == fixed
    table = 'def Xform "robot"\n{\n' + shape("Cube") + "}\n"
    (tmp_path / "robot.usda").write_text(HEAD.format(meters=1) + table)
    prop = usd.read(tmp_path / "robot.usda")
    assert prop.fixed and prop.root.name == "robot" and len(prop.root.shapes) == 1


def test_a_body_may_be_joined_to_the_world_twice(tmp_path):
    held = robot(body("base"), joint("Fixed", "first", "", "base"), joint("Fixed", "second", "base", ""))
    (tmp_path / "robot.usda").write_text(HEAD.format(meters=1) + held)
    assert usd.read(tmp_path / "robot.usda").fixed


def test_what_has_no_effect_is_named_in_one_line(tmp_path, caplog):
    parts = prim(
        "PhysicsCollisionGroup", "group", "rel collection:colliders:includes = </robot/base>", "CollectionAPI:colliders"
    )
    parts += prim("Scope", "pair", "rel physics:filteredPairs = </robot/base>", "PhysicsFilteredPairsAPI")
    parts += prim("Material", "rubber", "float physics:staticFriction = 2", "PhysicsMaterialAPI")
    parts += prim("Scope", "rope", "", "PhysxTendonAxisRootAPI:rope")
    box = "(0, 0, 0), (2, 0, 0), (0, 4, 0), (0, 0, 6), (2, 4, 6)"
    text = mesh(box, 'uniform token physics:approximation = "convexDecomposition"')
    text = text.replace("uniform token physics:axis", "bool physics:collisionEnabled = 1\nuniform token physics:axis")
    assert read(tmp_path, text[:-2] + parts + "}\n").body_names == ["base", "link"]
    (line,) = caplog.messages
    for word in ("group", "pair", "rubber", "rope", "hinge", "link/shape"):
        assert line.count(f"(/robot/{word})") == 1
    caplog.clear()
    read(tmp_path, ARM)
    assert not caplog.messages


def test_shapes_of_no_body_are_left_out_beside_a_robot(tmp_path, caplog):
    floor = shape("Cube", "floor", "rel physics:filteredPairs = </robot/base>", "PhysicsFilteredPairsAPI")
    asset = read(tmp_path, ARM[:-2] + prim("Xform", "ground", floor + shape("Plane", "sea")) + "}\n")
    assert asset.model.ngeom == 2
    assert [line.split(": ", 1)[1] for line in caplog.messages] == [
        "shapes of no rigid body are left out: /robot/ground/floor, /robot/ground/sea"
    ]


@pytest.mark.parametrize("kind", ["Capsule", "Cylinder"])
def test_a_shape_with_two_equal_radii_is_one_with_a_radius(tmp_path, kind):
    seen = []
    for name, content in (
        (kind, "double radius = 0.2"),
        (f"{kind}_1", "double radiusTop = 0.2\ndouble radiusBottom = 0.2"),
    ):
        for size in (content + "\ndouble height = 3", ""):
            model = read(tmp_path, robot(body("base", shape(name, "shape", size)))).model
            seen.append((model.geom_type.tolist(), model.geom_size.tolist(), model.body_mass.tolist()))
    assert seen[:2] == seen[2:] and seen[0] != seen[1]


def test_a_mass_or_density_is_that_of_the_caller(tmp_path):
    """A file's mass comes before the caller's density, as UsdPhysics has it."""
    path = tmp_path / "robot.usda"
    for own, mass, density, expected in (("", 7, 0, 7), ("5", 7, 0, 7), ("", 0, 500, 4000), ("5", 0, 500, 5)):
        given = f"float physics:mass = {own}\n" if own else ""
        path.write_text(HEAD.format(meters=1) + robot(body("base", given + shape("Cube"), "PhysicsMassAPI")))
        inertial = usd.read(path, mass, density).root.inertial
        assert inertial.mass == pytest.approx(expected)
        np.testing.assert_allclose(inertial.inertia, expected * 8 / 12 * np.eye(3), rtol=1e-6, atol=1e-6)
    path.write_text(
        HEAD.format(meters=0.01).replace("upAxis", "kilogramsPerUnit = 2\n upAxis") + robot(body("base", shape("Cube")))
    )
    assert usd.read(path, 0, 500).root.inertial.mass == pytest.approx(500 * 0.02**3)


def mesh(points, content=""):
    """Return the arm with a mesh as its link's shape."""
    faces = "int[] faceVertexCounts = [3]\nint[] faceVertexIndices = [0, 1, 2]"
    own = f"point3f[] points = [{points}]\n{faces}\n{content}"
    return ARM.replace("def Sphere", "def Mesh").replace("double radius = 1", own)


WRONG = {
    "PhysicsSphericalJoint is not supported": ARM.replace("PhysicsRevoluteJoint", "PhysicsSphericalJoint"),
    "closes a loop": ARM[:-2] + joint("Revolute", "again", "base", "link") + "}\n",
    "closed loops are not supported": ARM.replace(
        'uniform token physics:axis = "Z"', "bool physics:excludeFromArticulation = 1"
    ),
    "Cone does not collide here": ARM.replace("def Sphere", "def Cone"),
    "body1 /robot/nowhere does not exist": ARM.replace("</robot/link>", "</robot/nowhere>"),
    "only fixed joints are supported": ARM[:-2] + joint("Revolute", "swing", "", "base") + "}\n",
    "hinge: to the world only fixed": ARM.replace(
        "double size = 2\n}", "double size = 2\n}\nbool physics:rigidBodyEnabled = 0"
    ),
    "one body must be the root; found /robot/base, /robot/link": ARM.replace("PhysicsRevoluteJoint", "Scope"),
    "no prim with PhysicsRigidBodyAPI": 'def Xform "robot"\n{\n}\n',
    "signed distance field": ARM.replace("def Sphere", "def Mesh").replace(
        "double radius = 1",
        'point3f[] points = [(0,0,0), (1,0,0), (0,1,0)]\nuniform token physics:approximation = "sdf"',
    ),
    r"/robot/left/tip and /robot/right/tip have the same name": ARM[:-2]
    + "".join(
        prim("Xform", side, body("tip")) + joint("Fixed", f"to_{side}", "base", f"{side}/tip")
        for side in ("left", "right")
    )
    + "}\n",
    "neither body0 nor body1 is a rigid body": ARM[:-2] + joint("Fixed", "nothing", "", "") + "}\n",
    "/robot/hinge: physics:lowerLimit is not a number": ARM.replace(
        'uniform token physics:axis = "Z"', "float physics:lowerLimit = nan"
    ),
    "usda: /robot/link/shape: radius must be positive, not 0": ARM.replace("radius = 1", "radius = 0"),
    "/robot/link/shape: its scale is 0": ARM.replace(
        "double radius = 1", 'double3 xformOp:scale = (0, 1, 1)\nuniform token[] xformOpOrder = ["xformOp:scale"]'
    ),
    "/robot/link/shape: radiusTop 1 and radiusBottom 0.5 differ": ARM.replace("def Sphere", "def Capsule_1").replace(
        "double radius = 1", "double radiusTop = 1"
    ),
    "/robot/link/shape: a coordinate of its points is not finite": mesh("(0, 0, 0), (nan, 0, 0), (1, 1, 0)"),
    "usda: .*volume is too small": mesh("(0, 0, 0), (1e-6, 0, 0), (0, 1e-6, 0), (0, 0, 1e-6)"),
    "usda: .*collinear": mesh("(0, 0, 0), (1, 0, 0), (2, 0, 0), (3, 0, 0)"),
    "/robot/base is joined to the world, and /robot/link has PhysicsArticulationRootAPI": ARM.replace(
        'def Xform "link" (prepend apiSchemas = ["PhysicsRigidBodyAPI"',
        'def Xform "link" (prepend apiSchemas = ["PhysicsArticulationRootAPI", "PhysicsRigidBodyAPI"',
    )[:-2]
    + joint("Fixed", "root_joint", "", "base")
    + "}\n",
    r"refers to what is not there.*@?omniverse.*hand\.usd of /robot/hand": ARM[:-2]
    + 'def Xform "hand" (references = @omniverse://server/hand.usd@)\n{\n}\n}\n',
}


@pytest.mark.parametrize("words", WRONG)
def test_what_a_file_has_and_the_engine_has_not_is_named(tmp_path, words):
    with pytest.raises(AssetError, match=words):
        read(tmp_path, WRONG[words])


def test_files_that_cannot_be_read_say_what_to_do(tmp_path, monkeypatch):
    pointer, text = tmp_path / "pointer.usd", tmp_path / "text.usda"
    pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    text.write_text("#usda 1.0\ndef {")
    with pytest.raises(AssetError, match="git lfs pull"):
        usd.read(pointer)
    with pytest.raises(AssetError, match="OpenUSD cannot read it"):
        usd.read(text)
    monkeypatch.setattr(usd, "PathFinder", SimpleNamespace(find_spec=lambda name: None))
    with pytest.raises(AssetError, match="pip install usd-core"):
        usd.read(text)


def test_missing_pictures_do_not_matter_and_print_nothing(tmp_path, capfd):
    seen = 'def Xform "visuals" (references = @omniverse://server/skin.usd@)\n{\n}\n'
    assert isinstance(read(tmp_path, ARM[:-2] + seen + "}\n"), Asset)
    assert capfd.readouterr().err == ""


def test_a_missing_sublayer_is_named_and_not_the_file_that_lacks_its_parts(tmp_path):
    """As in what Isaac Sim's importer writes: NAME_physics.usd has NAME_base.usd as a sublayer, with the shapes."""
    (tmp_path / "physics.usda").write_text('#usda 1.0\n(subLayers = [@base.usd@])\nover "colliders"\n{\n}\n')
    shape = 'def Xform "shapes" (references = @physics.usda@</colliders/link>)\n{\n}\n'
    layered = ARM[:-2] + shape + "}\n"
    with pytest.raises(AssetError, match=r"cannot be read: base\.usd of \S*physics\.usda$"):
        read(tmp_path, layered)


def test_a_missing_sublayer_of_a_picture_hides_no_file_that_matters(tmp_path):
    (tmp_path / "skin.usda").write_text('#usda 1.0\n(subLayers = [@skin_base.usd@])\nover "skin"\n{\n}\n')
    (tmp_path / "there.usda").write_text('#usda 1.0\ndef "other"\n{\n}\n')
    files = {"visuals": "skin.usda@</skin>", "shapes": "collide.usda@</link>", "feet": "there.usda@</feet>"}
    parts = "".join(f'def Xform "{name}" (references = @{file})\n{{\n}}\n' for name, file in files.items())
    with pytest.raises(AssetError) as error:
        read(tmp_path, ARM[:-2] + parts + "}\n")
    names = str(error.value).partition("cannot be read: ")[2].replace(f"{tmp_path}/", "").split("; ")
    assert sorted(names) == ["collide.usda of /robot/shapes", "skin_base.usd of skin.usda", "there.usda of /robot/feet"]
