"""Simulate small scenes with NVIDIA's PhysX, for tests of the open ``isaacgym``.

    python -m venv physx && physx/bin/pip install ovphysx physx-usd-schemas newton-usd-schemas
    physx/bin/python scripts/physx_scenes.py

writes tests/isaac_gym/physx_scenes.json: the parameters of each scene and what PhysX computes. The package ``ovphysx``
is NVIDIA's, with a licence of its own; it is no dependency of this project, and the file has nothing of it but numbers.
Lengths are in m, angles in rad, and quaternions are xyzw.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Callable

import numpy as np
import ovphysx  # type: ignore[import-not-found]
import ovstage  # type: ignore[import-not-found]
from ovphysx.samples.python_samples.schema_support import physx_schema_paths  # type: ignore[import-not-found]
from ovphysx.types import TensorType  # type: ignore[import-not-found]

OUT = Path(__file__).resolve().parent.parent / "tests" / "isaac_gym" / "physx_scenes.json"
DT = 1.0 / 120.0  # of IsaacGymEnvs' tasks: 60 Hz, two substeps
DRIVE = {"stiffness": 0.0, "damping": 0.0, "armature": 0.0, "effort": 1e6, "velocity": 1e6, "target": 0.0}
BOX = {"mass": 2.0, "size": 0.2, "com": [0.0, 0.0, 0.0], "inertia": [0.0133, 0.0133, 0.0133],
       "linear_damping": 0.0, "angular_damping": 0.0}  # fmt: skip
UPPER = {"mass": 1.5, "com": [0.0, 0.0, -0.2], "inertia": [0.02, 0.02, 0.004], "at": [0.0, 0.0, 0.0]}
LOWER = {"mass": 0.7, "com": [0.03, 0.0, -0.15], "inertia": [0.01, 0.01, 0.002], "at": [0.0, 0.0, -0.4]}
LIGHT = {"mass": 0.05, "com": [0.0, 0.0, -0.1], "inertia": [2e-4, 2e-4, 1e-5], "at": [0.0, 0.0, 0.0]}
SCENES: dict[str, dict[str, Any]] = {
    "spinning fall": {"box": {**BOX, "com": [0.1, 0.0, 0.0], "inertia": [0.01, 0.02, 0.02]}, "steps": 60,
                      "height": 5.0, "velocity": [1.0, 0.0, 0.0, 1.0, 0.5, 2.0]},
    "damped fall": {"box": {**BOX, "linear_damping": 0.5, "angular_damping": 2.0}, "steps": 60, "height": 5.0,
                    "velocity": [1.0, 0.0, 0.0, 0.0, 0.0, 2.0]},
    "pendulum": {"links": [UPPER, LOWER], "drives": [DRIVE, DRIVE], "steps": 120, "start": [1.0, -0.5]},
    "pendulum with armature": {"links": [UPPER, LOWER], "drives": [{**DRIVE, "armature": 0.05}] * 2, "steps": 120,
                               "start": [1.0, -0.5]},
    "damped arm": {"links": [{**UPPER, "linear_damping": 3.0, "angular_damping": 8.0},
                             {**LOWER, "linear_damping": 3.0, "angular_damping": 8.0}],
                   "drives": [DRIVE, DRIVE], "steps": 120, "start": [1.0, -0.5], "start_velocity": [2.0, -3.0]},
    "arm that damping holds": {"links": [{**UPPER, "linear_damping": 150.0, "angular_damping": 200.0}],
                               "drives": [DRIVE], "steps": 30, "start": [1.0], "start_velocity": [3.0]},
    "damped drive": {"links": [{**UPPER, "linear_damping": 100.0, "angular_damping": 100.0}], "drives": [
        {**DRIVE, "stiffness": 40.0, "damping": 2.0, "target": 0.5}], "steps": 480, "start": [0.0]},
    "damped free arm": {"links": [{**LOWER, "linear_damping": 2.0, "angular_damping": 5.0}], "free": True,
                        "base": {"linear_damping": 2.0, "angular_damping": 5.0}, "drives": [DRIVE], "steps": 60,
                        "start": [0.3], "start_velocity": [4.0], "velocity": [1.0, 0.5, 0.0, 0.5, 0.0, 1.0]},
    "soft drive": {"links": [UPPER], "drives": [{**DRIVE, "stiffness": 40.0, "damping": 2.0, "target": 0.5}],
                   "steps": 120, "start": [0.0]},
    "stiff drive": {"links": [LIGHT], "drives": [{**DRIVE, "stiffness": 400.0, "damping": 1.0, "target": 0.5}],
                    "steps": 120, "start": [0.0]},
    "effort limit": {"links": [UPPER], "steps": 120, "start": [0.0],
                     "drives": [{**DRIVE, "stiffness": 400.0, "damping": 20.0, "target": 0.8, "effort": 2.5}]},
    "velocity limit": {"links": [UPPER], "steps": 120, "start": [0.0],
                       "drives": [{**DRIVE, "stiffness": 400.0, "damping": 4.0, "target": 1.2, "velocity": 3.0}]},
    "firm drive": {"links": [LIGHT], "steps": 400, "start": [0.0], "start_velocity": [-2.6],
                   "drives": [{**DRIVE, "stiffness": 400.0, "damping": 80.0, "target": 0.3, "effort": 12.0,
                               "velocity": 2.6}]},
    "firm drive of little effort": {"links": [LIGHT], "steps": 400, "start": [0.0], "drives": [
        {**DRIVE, "stiffness": 400.0, "damping": 80.0, "target": 0.3, "effort": 0.2, "velocity": 2.6}]},
    "strong drive": {"links": [LIGHT], "steps": 60, "start": [0.0], "start_velocity": [-0.2], "drives": [
        {**DRIVE, "stiffness": 5000.0, "damping": 100.0, "target": 0.05, "effort": 200.0, "velocity": 0.2}]},
    "effort beyond the limit": {"links": [UPPER], "drives": [{**DRIVE, "effort": 2.5}], "actuation": 4.0, "steps": 30,
                                "start": [0.0]},
    "slide": {"box": BOX, "steps": 90, "height": 0.1, "velocity": [2.0, 0.0, 0.0, 0.0, 0.0, 0.0],
              "friction": {"box": 0.8, "ground": 0.2}},
    "drop": {"box": BOX, "steps": 120, "height": 0.4, "velocity": [0.0] * 6, "friction": {"box": 0.5, "ground": 0.5}},
}  # fmt: skip

STAGE = """#usda 1.0
(
    defaultPrim = "World"
    metersPerUnit = 1
    kilogramsPerUnit = 1
    upAxis = "Z"
)
def Xform "World"
{
    def PhysicsScene "scene"
    {
        vector3f physics:gravityDirection = (0, 0, -1)
        float physics:gravityMagnitude = 9.81
    }
%s
}
"""
BODY = """
    def %(kind)s "%(name)s" (apiSchemas = ["PhysicsRigidBodyAPI", "PhysicsMassAPI", "PhysxRigidBodyAPI"%(apis)s])
    {
        double3 xformOp:translate = %(place)s
        uniform token[] xformOpOrder = ["xformOp:translate"]
        float physics:mass = %(mass)s
        point3f physics:centerOfMass = %(com)s
        float3 physics:diagonalInertia = %(inertia)s
        quatf physics:principalAxes = (1, 0, 0, 0)
        float physxRigidBody:angularDamping = %(angular_damping)s
        float physxRigidBody:linearDamping = %(linear_damping)s
        float physxRigidBody:maxAngularVelocity = 1000000
        float physxRigidBody:sleepThreshold = 0
        int physxRigidBody:solverPositionIterationCount = 4
        int physxRigidBody:solverVelocityIterationCount = 1
%(more)s
    }
"""
JOINT = """
    def PhysicsRevoluteJoint "joint%(number)s" (apiSchemas = ["PhysicsDriveAPI:angular", "PhysxJointAPI"])
    {
        uniform token physics:axis = "Y"
        rel physics:body0 = </World/arm/%(parent)s>
        rel physics:body1 = </World/arm/%(child)s>
        point3f physics:localPos0 = %(place)s
        point3f physics:localPos1 = (0, 0, 0)
        uniform token drive:angular:physics:type = "force"
        float physxJoint:jointFriction = 0
    }
"""
ARM = """
    def Xform "arm" (apiSchemas = ["PhysicsArticulationRootAPI", "PhysxArticulationAPI"])
    {
        bool physxArticulation:enabledSelfCollisions = false
        float physxArticulation:sleepThreshold = 0
        int physxArticulation:solverPositionIterationCount = 4
        int physxArticulation:solverVelocityIterationCount = 1
%s
    }
"""
FIXED = """
        def PhysicsFixedJoint "root"
        {
            rel physics:body1 = </World/arm/base>
            point3f physics:localPos0 = (0, 0, 2)
            point3f physics:localPos1 = (0, 0, 0)
        }
"""
GROUND = """
    def Plane "ground" (apiSchemas = ["PhysicsCollisionAPI", "MaterialBindingAPI"])
    {
        uniform token axis = "Z"
        rel material:binding:physics = </World/ground_material>
    }
"""
MATERIAL = """
    def Material "%(name)s_material" (apiSchemas = ["PhysicsMaterialAPI"])
    {
        float physics:staticFriction = %(friction)s
        float physics:dynamicFriction = %(friction)s
        float physics:restitution = 0
    }
"""


def main() -> None:
    roots = [*map(str, physx_schema_paths()), str(ovphysx.newton_schema_root())]
    ovstage.population.register_usd_schemas(roots)
    ovphysx.PhysX.set_cpu_mode(True)
    scenes = {}
    for name, scene in SCENES.items():
        text, run = (arm_text(scene), run_arm) if "links" in scene else (box_text(scene), run_box)
        scenes[name] = {
            **scene,
            "dt": DT,
            "physx": simulate(text, lambda physx, run=run, scene=scene: run(physx, scene)),
        }
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(scene)}" for name, scene in scenes.items())
    OUT.write_text(f'{{"ovphysx": "{version("ovphysx")}", "scenes": {{\n{lines}\n}}}}\n', encoding="utf-8")


def vector(values: Any) -> str:
    return f"({', '.join(str(float(x)) for x in values)})"


def body(name: str, own: dict[str, Any], place: Any, kind: str = "Xform", apis: str = "", more: str = "") -> str:
    own = {**BOX, **own, "com": vector(own["com"]), "inertia": vector(own["inertia"]), "place": vector(place)}
    return BODY % {**own, "name": name, "kind": kind, "apis": apis, "more": more}


def box_text(scene: dict[str, Any]) -> str:
    box, apis, more, others = scene["box"], "", f"        double size = {scene['box']['size']}", ""
    if "friction" in scene:
        apis = ', "PhysicsCollisionAPI", "MaterialBindingAPI"'
        more += "\n        rel material:binding:physics = </World/box_material>"
        others = GROUND + "".join(MATERIAL % {"name": k, "friction": v} for k, v in scene["friction"].items())
    return body("box", box, [0, 0, scene["height"]], "Cube", apis, more) + others


def arm_text(scene: dict[str, Any]) -> str:
    base = {"mass": 1.0, "com": [0, 0, 0], "inertia": [0.1, 0.1, 0.1], **scene.get("base", {})}
    parts, parent, place = body("base", base, [0, 0, 2]), "base", np.array([0.0, 0.0, 2.0])
    for number, link in enumerate(scene["links"]):
        child, place = f"link{number}", place + link["at"]
        parts += body(child, link, place)
        parts += JOINT % {"number": number, "parent": parent, "child": child, "place": vector(link["at"])}
        parent = child
    return ARM % (parts if scene.get("free") else FIXED + parts)


def simulate(text: str, run: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """Run a function on a simulation of a stage with these objects."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "stage.usda"
        file.write_text(STAGE % text, encoding="utf-8")
        physx, stage = ovphysx.PhysX(), ovstage.Stage(Path(folder).name)
        ovstage.population.open_usd(stage, str(file), ordinal=1, domains=ovstage.PopulationDomain.ALL)
        stage.advance_write_floor(ordinal=1).wait()
        physx.wait_task(physx.attach_ovstage(stage, read_ordinal=1))
        physx.wait_all()
        try:
            return run(physx)
        finally:
            physx.wait_task(physx.detach_ovstage())
            stage.destroy()
            physx.destroy()


class View:
    """A tensor of one object, without the dimension of the objects."""

    def __init__(self, physx: Any, path: str, kind: str) -> None:
        self._binding = physx.create_tensor_binding(pattern=path, tensor_type=TensorType[kind])

    def read(self) -> np.ndarray:
        values = np.zeros(self._binding.shape, np.float32)
        self._binding.read(values)
        return values[0]

    def write(self, values: Any) -> None:
        self._binding.write(np.asarray(values, np.float32).reshape(self._binding.shape))


def run_box(physx: Any, scene: dict[str, Any]) -> dict[str, Any]:
    """Return pose and velocity, ``(steps, 13)``, as of Isaac Gym's root states."""
    pose, velocity = (View(physx, "/World/box", f"RIGID_BODY_{kind}") for kind in ("POSE", "VELOCITY"))
    pose.write([0, 0, scene["height"], 0, 0, 0, 1])  # reading the first tensor made a step
    velocity.write(scene["velocity"])
    states = []
    for _ in range(scene["steps"]):
        physx.step_sync(DT)
        states.append([*pose.read(), *velocity.read()])
    return {"states": rounded(states)}


def run_arm(physx: Any, scene: dict[str, Any]) -> dict[str, Any]:
    """Return positions and velocities of the joints, ``(steps, 2, dofs)``, and matrices after the first step.

    Of an arm that is free return the poses and velocities of its base as well, ``(steps, 13)``.

    ``actuation`` is a torque of the first joint, in every step.
    """

    def dofs(kind: str) -> View:
        return View(physx, "/World/arm", f"ARTICULATION_DOF_{kind}")

    position, velocity = dofs("POSITION"), dofs("VELOCITY")
    kinds = {"stiffness": "STIFFNESS", "damping": "DAMPING", "armature": "ARMATURE", "effort": "MAX_FORCE",
             "velocity": "MAX_VELOCITY", "target": "POSITION_TARGET"}  # fmt: skip
    for key, kind in kinds.items():
        dofs(kind).write([drive[key] for drive in scene["drives"]])
    position.write(scene["start"])
    velocity.write(scene.get("start_velocity", np.zeros(len(scene["start"]))))
    free = scene.get("free", False)
    kinds = ["ROOT_POSE", "ROOT_VELOCITY"] if free else ["JACOBIAN", "MASS_MATRIX"]
    first, second = (View(physx, "/World/arm", f"ARTICULATION_{kind}") for kind in kinds)
    if free:
        first.write([0, 0, 2, 0, 0, 0, 1])
        second.write(scene["velocity"])
    states, roots, found = [], [], {}
    for step in range(scene["steps"]):
        if "actuation" in scene:
            dofs("ACTUATION_FORCE").write([scene["actuation"]])
        physx.step_sync(DT)
        states.append([position.read(), velocity.read()])
        if free:
            roots.append([*first.read(), *second.read()])
        elif step == 0:
            found = {"jacobian": rounded(first.read()), "mass_matrix": rounded(second.read())}
    return {**found, **({"roots": rounded(roots)} if free else {}), "states": rounded(states)}


def rounded(values: Any) -> Any:
    return np.round(np.asarray(values, np.float64), 6).tolist()


if __name__ == "__main__":
    main()
