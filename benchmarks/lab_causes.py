"""Causes of the differences that lab_newton.py finds: the same steps by MuJoCo in double precision on the 3.0's model.

    V3/bin/python benchmarks/lab_causes.py record ROBOTS FILE                # the environment of lab_newton.py
    .venv-isaaclab/bin/python benchmarks/lab_causes.py compare ROBOTS FILE   # prints the table of isaaclab.md

``record`` writes to ``FILE`` the velocities of joints after the steps that lab_newton.json has: of MuJoCo Warp, of
MuJoCo on the model that Newton made for it, and of MuJoCo with the tangents that MuJoCo Warp gives to contacts of
capsules with a plane; and orientations and inertias of the bodies. ``compare`` adds those of this project, as it is and
with these orientations and inertias.
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import lab_newton as lab_steps
import mujoco
import numpy as np

STEEP = 0.5  # length of a capsule's projected axis below which MuJoCo Warp takes other tangents (plane_capsule)
BODIES = ("body_quat", "body_iquat", "body_inertia")
INPUTS = ("qpos", "qvel", "ctrl", "qfrc_applied", "qacc_warmstart")


def newtons_model(solver: Any) -> mujoco.MjModel:
    """Return MuJoCo's model with the numbers that MuJoCo Warp has in the first world."""
    model = copy.copy(solver.mj_model)
    for name in (x for x in dir(model) if not x.startswith("_") and hasattr(solver.mjw_model, x)):
        values, theirs = getattr(model, name), getattr(solver.mjw_model, name)
        if isinstance(values, np.ndarray) and values.dtype.kind == "f" and hasattr(theirs, "numpy"):
            theirs = theirs.numpy()
            if values.size and theirs.size % values.size == 0:
                values[...] = theirs.reshape(-1, *values.shape)[0]
    for name in ("body_sameframe", "geom_sameframe", "body_simple", "dof_simplenum"):  # of the numbers before
        getattr(model, name)[:] = 0
    bits = mujoco.mjtDisableBit
    model.opt.disableflags |= int(bits.mjDSBL_MIDPHASE) | int(bits.mjDSBL_ISLAND)
    model.opt.timestep = float(solver.mjw_model.opt.timestep.numpy()[0])
    return model


def step(model: mujoco.MjModel, data: mujoco.MjData, warp_tangents: bool) -> None:
    """Advance by a step, as ``mj_step`` with the integrator ``implicitfast``."""
    for stage in (mujoco.mj_kinematics, mujoco.mj_comPos, mujoco.mj_makeM, mujoco.mj_factorM, mujoco.mj_collision):
        stage(model, data)
    for contact in data.contact if warp_tangents else []:
        normal, axis = contact.frame[:3], data.geom_xmat[contact.geom[1]].reshape(3, 3)[:, 2]
        capsule = model.geom_type[contact.geom[1]] == mujoco.mjtGeom.mjGEOM_CAPSULE
        if capsule and np.linalg.norm(axis - normal * (normal @ axis)) < STEEP:
            contact.frame[3:] = np.r_[[0.0, 1.0, 0.0], np.cross(normal, [0.0, 1.0, 0.0])]
    for stage in (mujoco.mj_makeConstraint, mujoco.mj_transmission, mujoco.mj_projectConstraint):
        stage(model, data)
    mujoco.mj_fwdVelocity(model, data)
    for stage in (mujoco.mj_fwdActuation, mujoco.mj_fwdAcceleration, mujoco.mj_fwdConstraint, mujoco.mj_implicit):
        stage(model, data)


def record(folder: Path, file: Path) -> None:
    out: dict[str, np.ndarray] = {}
    for name in ("ant", "humanoid"):
        lab = lab_steps.Newton(name, lab_steps.STATES, folder, single=True)
        from isaaclab_newton.physics.newton_manager import NewtonManager  # after the task has said where assets are

        solver = NewtonManager._solver
        noted = json.loads(lab_steps.RECORD.read_text())["robots"][name]
        assert [lab_steps.merged(joint) for joint in lab.robot.joint_names] == noted["joints"]
        before: list[dict[str, np.ndarray]] = []
        plain = solver._mujoco_warp_step

        def noting(before: Any = before, solver: Any = solver, plain: Any = plain) -> None:
            before.append({key: getattr(solver.mjw_data, key).numpy().copy() for key in INPUTS})
            plain()

        solver._mujoco_warp_step = noting
        origins = getattr(lab.env.scene.env_origins, "torch", lab.env.scene.env_origins).double().numpy()
        for case in ("air", "ground"):
            state = {key: np.array(x) for key, x in noted[case]["before"].items()}
            state["root_pos"] += origins
            lab.write(state)
            lab_steps.act(lab, np.array(noted[case]["actions"]))
            before.clear()
            for number in range(lab_steps.STEPS):
                lab_steps.step(lab)
                out[f"{name}/{case}/{number}/warp"] = solver.mjw_data.qvel.numpy()[:, 6:].astype(float)
            model = newtons_model(solver)
            for kind in ("double", "tangents"):
                for env in range(lab_steps.STATES):
                    data = mujoco.MjData(model)
                    for key in INPUTS:
                        getattr(data, key)[...] = before[0][key][env]
                    for number in range(lab_steps.STEPS):
                        data.ctrl[...] = before[number]["ctrl"][env]
                        data.qfrc_applied[...] = before[number]["qfrc_applied"][env]
                        step(model, data, kind == "tangents")
                        key = f"{name}/{case}/{number}/{kind}"
                        out.setdefault(key, np.zeros((lab_steps.STATES, model.nv - 6)))[env] = data.qvel[6:]
        paths = [mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_BODY, body) for body in range(1, model.nbody)]
        out[f"{name}/bodies"] = np.array(paths)
        out |= {f"{name}/{key}": getattr(model, key)[1:] for key in BODIES}
        lab.env.close()
    np.savez(file, **out)


def compare(folder: Path, file: Path) -> None:
    noted = np.load(file)
    for name in ("ant", "humanoid"):
        joints = json.loads(lab_steps.RECORD.read_text())["robots"][name]["joints"]
        both = [velocities(name, folder, joints, fields) for fields in ({}, theirs(noted, name))]
        for case, number in ((case, number) for case in ("air", "ground") for number in range(lab_steps.STEPS)):
            warp, double, tangents = (
                noted[f"{name}/{case}/{number}/{kind}"] for kind in ("warp", "double", "tangents")
            )
            ours, ours_on_their_bodies = (x[case, number] for x in both)
            pairs = [(ours, warp), (double, warp), (tangents, warp), (ours, double), (ours_on_their_bodies, double)]
            print(f"| {name} | {case}, {number + 1} |", " | ".join(f"{np.abs(a - b).max():.1e}" for a, b in pairs), "|")


def theirs(noted: Any, name: str) -> dict[str, dict[str, np.ndarray]]:
    """Return orientations and inertias of the bodies but the root, by the ends of the bodies' paths in the 3.0."""
    values = [dict(zip(BODIES, row)) for row in zip(*(noted[f"{name}/{key}"] for key in BODIES))]
    return dict(zip([str(x) for x in noted[f"{name}/bodies"]], values))


def velocities(name: str, folder: Path, joints: list[str], fields: dict[str, dict[str, np.ndarray]]) -> dict[Any, Any]:
    """Return the velocities of this project's joints after each step, in the order of ``joints``."""
    lab = lab_steps.Ours(name, lab_steps.STATES, folder, "IMPLICITFAST")
    noted = json.loads(lab_steps.RECORD.read_text())["robots"][name]
    physics, order = lab.env.sim.running, [joints.index(joint) for joint in lab.robot.joint_names]
    layout = physics.layout
    for body in layout.bodies[1:] if fields else []:  # a name may end as another one does: torso_left_foot, left_foot
        ending = "_" + layout.model.body(body).name.split("/")[-1]
        values = min((x for x in fields if x.endswith(ending)), key=len)
        for env in range(lab_steps.STATES):
            physics.set_fields(env, {key: ([body], x[None]) for key, x in fields[values].items()})
    out = {}
    for case in ("air", "ground"):
        lab.write(lab_steps.sorted_joints(noted[case]["before"], order))
        lab_steps.act(lab, np.array(noted[case]["actions"])[:, order])
        for number in range(lab_steps.STEPS):
            lab_steps.step(lab)
            out[case, number] = lab.read()["joint_vel"][:, np.argsort(order)]
    lab.env.close()
    type(lab.env.sim).clear_instance()
    return out


if __name__ == "__main__":
    verb, folder, file = sys.argv[1], Path(sys.argv[2]).resolve(), Path(sys.argv[3]).resolve()
    if verb == "record":
        record(folder, file)
    else:
        sys.path[:0] = [str(lab_steps.ROOT), str(lab_steps.ROOT / "packages")]
        compare(folder, file)
    sys.stdout.flush()
    lab_steps.os._exit(0)  # without the complaints of environments that are taken down
