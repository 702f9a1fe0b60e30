"""Pictures of simulations with MuJoCo's renderer: models with scenery, cameras and markers."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from envcoder_bench.sim.ground import Ground
from envcoder_bench.sim.mujoco_model import put_ground

FLOOR_TILE = 1.0  # m, the edge of a tile of the checkered floor
_SHADOW_SIZE = 1024  # texels of a shadow's edge; MuJoCo's default of 4096 takes most of the time without a GPU
_SKY_TOP, _SKY_BOTTOM = (0.48, 0.62, 0.79), (0.93, 0.95, 0.97)
_RELIEF = (0.62, 0.64, 0.67, 1.0)
_EXTENT = 4.0  # m, extent of a scene with ground: MuJoCo hides parts nearer to the camera than 1 % of the extent
_LIGHT, _LIGHT_PLACE = "video_light", (1.0, -1.5, 4.0)
_PLANE, _FIELD = int(mujoco.mjtGeom.mjGEOM_PLANE), int(mujoco.mjtGeom.mjGEOM_HFIELD)
_LONG = (int(mujoco.mjtGeom.mjGEOM_CAPSULE), int(mujoco.mjtGeom.mjGEOM_CYLINDER))
_FREE, _SLIDE = int(mujoco.mjtJoint.mjJNT_FREE), int(mujoco.mjtJoint.mjJNT_SLIDE)
_ON_JOINT = (int(mujoco.mjtTrn.mjTRN_JOINT), int(mujoco.mjtTrn.mjTRN_JOINTINPARENT))
_FOLLOWING = (int(mujoco.mjtCamLight.mjCAMLIGHT_TRACK), int(mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM))
_GAP, _ROD = 0.03, 0.02  # m: the largest gap of a link without a rod; the radius of a rod


@dataclass(frozen=True)
class Camera:
    """A view: the point it looks at, its distance, m, and its direction, degrees."""

    lookat: np.ndarray
    distance: float
    azimuth: float
    elevation: float


@dataclass(frozen=True)
class Arrow:
    """A marker: an arrow from ``start`` along ``vector``, m, world frame."""

    start: np.ndarray
    vector: np.ndarray
    rgba: tuple[float, float, float, float]
    width: float = 0.025


@dataclass(frozen=True)
class Cube:
    """A marker: a cube with edges of twice ``half``, m, and columns of ``axes`` ``(3, 3)`` as its axes."""

    centre: np.ndarray
    axes: np.ndarray
    half: float
    rgba: tuple[float, float, float, float]


Marker = Arrow | Cube


@dataclass(frozen=True)
class PlanarBase:
    """The base of a robot that moves in a plane, as gymnasium's Hopper.

    Attributes:
        on_ground: names of its slides along the ground, of which the first is the direction in which it runs.
        upward: name of its slide upwards; None in the plane of the ground.
        normal: ``(3,)`` of the plane.
        height: m, of the first body above the world's origin in the model's default pose.
    """

    on_ground: list[str]
    upward: str | None
    normal: np.ndarray
    height: float


def scenery(xml: Path, ground: Ground | None = None) -> Any:
    """Compile a model file with a sky, a checkered floor and a light; its qpos is that of the plain model.

    ``ground`` replaces the floor.
    """
    spec = mujoco.MjSpec.from_file(str(xml))
    if ground is not None:
        put_ground(spec, ground)
    # sky and floor
    for texture in list(spec.textures):
        if int(texture.type) == int(mujoco.mjtTexture.mjTEXTURE_SKYBOX):  # MuJoCo draws the first
            spec.delete(texture)
    spec.add_texture(
        name="video_sky",
        type=mujoco.mjtTexture.mjTEXTURE_SKYBOX,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT,
        rgb1=_SKY_TOP,
        rgb2=_SKY_BOTTOM,
        width=64,
        height=384,
    )
    spec.add_texture(
        name="video_floor",
        type=mujoco.mjtTexture.mjTEXTURE_2D,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_CHECKER,
        rgb1=(0.82, 0.84, 0.86),
        rgb2=(0.74, 0.77, 0.80),
        width=256,
        height=256,
    )
    floor = spec.add_material(name="video_floor", texrepeat=(0.5 / FLOOR_TILE, 0.5 / FLOOR_TILE), texuniform=True)
    floor.textures[int(mujoco.mjtTextureRole.mjTEXROLE_RGB)] = "video_floor"
    for geom in spec.geoms:
        level = int(geom.type) == _PLANE and abs(geom.quat[0]) > 0.999
        if level and any(geom.size[:2]):  # contacts do not end where the drawn part does
            geom.size[:2], geom.material = 0.0, ""
        if int(geom.type) == _PLANE and not geom.material and not any(geom.size[:2]):
            geom.material, geom.rgba = "video_floor", (1, 1, 1, 1)
    if ground is not None:
        for geom in spec.worldbody.geoms:  # a single colour, so that light and shadow show the relief
            geom.rgba = _RELIEF
        spec.stat.extent = _EXTENT
    # a single light, whose shadow shows contacts with the ground
    for light in list(spec.lights):
        spec.delete(light)
    _connect(spec)
    return _add_light(spec)


def _connect(spec: Any) -> None:
    """Draw a rod where the shapes of a link begin away from its joint, so that nothing seems to float."""
    model = spec.compile()
    links = [(link.id, link) for link in spec.bodies]  # a body need not have a name; changes reset the ids
    for body, link in links:
        geoms = range(model.body_geomadr[body], model.body_geomadr[body] + model.body_geomnum[body])
        if not model.body_jntnum[body] or model.body_parentid[body] == 0 or not len(geoms):
            continue
        ends = [_nearest(model, geom) for geom in geoms]
        sizes = [model.geom_size[geom, : 1 if int(model.geom_type[geom]) in _LONG else 3].max() for geom in geoms]
        gaps = [np.linalg.norm(end) - size for end, size in zip(ends, sizes)]
        nearest = int(np.argmin(gaps))
        if gaps[nearest] > _GAP:
            rod = link.add_geom(type=mujoco.mjtGeom.mjGEOM_CAPSULE, contype=0, conaffinity=0, mass=0)
            rod.fromto, rod.size = [0, 0, 0, *ends[nearest]], [min(_ROD, model.geom_size[geoms[nearest], 0]), 0, 0]
            rod.rgba = model.geom_rgba[geoms[nearest]]


def _nearest(model: Any, geom: int) -> np.ndarray:
    """Return the point of a geom's axis, or its centre, that is nearest to the origin of its body."""
    centre = model.geom_pos[geom]
    if int(model.geom_type[geom]) not in _LONG:
        return centre
    axis = np.zeros(3)
    mujoco.mju_rotVecQuat(axis, np.array([0.0, 0.0, 1.0]), model.geom_quat[geom])
    half = float(model.geom_size[geom, 1])
    return centre + np.clip(-centre @ axis, -half, half) * axis


def _add_light(spec: Any) -> Any:
    spec.visual.headlight.ambient = (0.42, 0.42, 0.42)
    spec.visual.headlight.diffuse = (0.28, 0.28, 0.28)
    spec.visual.headlight.specular = (0.1, 0.1, 0.1)
    spec.worldbody.add_light(
        name=_LIGHT,
        pos=_LIGHT_PLACE,
        dir=(-0.25, 0.35, -1.0),
        type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL,
        mode=mujoco.mjtCamLight.mjCAMLIGHT_FIXED,
        castshadow=True,
        diffuse=(0.5, 0.5, 0.5),
        specular=(0.15, 0.15, 0.15),
    )
    return spec.compile()


def brightened(model: Any) -> Any:
    """Return a copy of a compiled model, which has no file, with brighter light, ground and robot."""
    model = copy.copy(model)
    model.vis.headlight.ambient[:] = 0.6
    model.vis.headlight.diffuse[:] = 0.55
    model.vis.headlight.specular[:] = 0.1
    grounds = (model.geom_type == _PLANE) | (model.geom_type == _FIELD)
    plain = (np.abs(model.geom_rgba[:, :3] - 0.5) < 0.01).all(axis=1)  # MuJoCo's default colour
    model.geom_rgba[plain & ~grounds & (model.geom_matid < 0), :3] = (0.88, 0.5, 0.2)
    model.geom_rgba[grounds & (model.geom_matid < 0)] = (0.72, 0.74, 0.77, 1.0)
    return model


def moving_geoms(model: Any) -> np.ndarray:
    """Return the ids of the geoms that are not part of the world."""
    return np.flatnonzero(model.body_weldid[model.geom_bodyid] != 0)


def is_floating(model: Any) -> bool:
    """Return whether the first joint is free, so that a camera must follow the robot."""
    return bool(model.njnt and int(model.jnt_type[0]) == _FREE and int(model.jnt_bodyid[0]) == 1)


def planar_base(model: Any) -> PlanarBase | None:
    """Return the base of a robot that slides in a plane on joints without drives; None for other robots."""
    driven = {int(model.actuator_trnid[a, 0]) for a in range(model.nu) if int(model.actuator_trntype[a]) in _ON_JOINT}
    slides = [
        j
        for j in range(model.njnt)
        if int(model.jnt_bodyid[j]) == 1 and int(model.jnt_type[j]) == _SLIDE and j not in driven
    ]
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    axes = {j: data.xaxis[j].copy() for j in slides}
    level = [j for j in slides if abs(axes[j][2]) < 0.1]
    upright = [j for j in slides if abs(axes[j][2]) > 0.9]
    if len(slides) < 2 or not level:
        return None
    normal = np.cross(axes[level[0]], (0.0, 0.0, 1.0)) if upright else np.array([0.0, 0.0, 1.0])
    on_ground = [model.joint(j).name for j in level]
    return PlanarBase(on_ground, model.joint(upright[0]).name if upright else None, normal, float(data.xpos[1, 2]))


def own_camera(model: Any) -> np.ndarray | None:
    """Return the direction ``(3,)`` of the model's camera that follows the robot; None without such a camera."""
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    for camera in range(model.ncam):
        if int(model.cam_mode[camera]) in _FOLLOWING and int(model.cam_bodyid[camera]) > 0:
            return -data.cam_xmat[camera].reshape(3, 3)[:, 2]
    return None


def centre_path(model: Any, poses: np.ndarray) -> np.ndarray:
    """Return the positions ``(n, 3)`` of the robot's centre of mass, m, in ``poses`` ``(n, nq)``."""
    data, path = mujoco.MjData(model), np.empty((len(poses), 3))
    for k, qpos in enumerate(poses):
        data.qpos[:] = qpos
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        path[k] = data.subtree_com[1]
    return path


def is_flat(model: Any) -> bool:
    """Return whether the ground is a plane."""
    return bool((model.geom_type == _PLANE).any())


def bounds(model: Any, poses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and highest corner, ``(3,)`` each, of the robot and objects in all ``poses`` ``(n, nq)``."""
    data, ids = mujoco.MjData(model), moving_geoms(model)
    ground = (model.geom_type == _PLANE) | (model.geom_type == _FIELD)
    fixed = np.flatnonzero(~ground & (model.body_weldid[model.geom_bodyid] == 0))
    ids = np.concatenate([ids, fixed[model.geom_rbound[fixed] < 1.0]])
    low, high = np.full(3, np.inf), np.full(3, -np.inf)
    for qpos in poses:
        data.qpos[:] = qpos
        mujoco.mj_kinematics(model, data)
        places, radii = data.geom_xpos[ids], model.geom_rbound[ids][:, None] * 0.8
        low, high = np.minimum(low, (places - radii).min(axis=0)), np.maximum(high, (places + radii).max(axis=0))
    return low, high


class SceneRenderer:
    """Renders poses of one model to RGB pictures. Needs an OpenGL context: set MUJOCO_GL before mujoco is imported.

    ``fast`` leaves out antialiasing and coarsens shadows and round shapes: without a GPU a third of the time.
    """

    def __init__(self, model: Any, width: int, height: int, fast: bool = False) -> None:
        self._model = model = copy.copy(model)
        model.vis.global_.offwidth, model.vis.global_.offheight = width, height
        quality = model.vis.quality
        quality.shadowsize = _SHADOW_SIZE
        if fast:
            quality.shadowsize, quality.offsamples = _SHADOW_SIZE // 2, 0
            quality.numslices, quality.numstacks, quality.numquads = 14, 9, 2
        model.vis.global_.fovy = 42
        self._data = mujoco.MjData(model)
        self._renderer = mujoco.Renderer(model, height, width, max_geom=max(2000, 4 * model.ngeom))
        self._option = mujoco.MjvOption()
        self._light = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_LIGHT, _LIGHT)
        has_sky = (model.tex_type == int(mujoco.mjtTexture.mjTEXTURE_SKYBOX)).any()
        # a model without a sky gets a picture of a sky behind it
        share = np.linspace(0, 1, height)[:, None]
        rows = 255 * ((1 - share) * np.array(_SKY_TOP) + share * np.array(_SKY_BOTTOM))
        self._sky = None if has_sky else np.broadcast_to(rows[:, None].astype(np.uint8), (height, width, 3))
        flags = self._renderer.scene.flags
        flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = False

    def render(
        self,
        qpos: np.ndarray,
        camera: Camera,
        markers: Sequence[Marker] = (),
        mocap: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> np.ndarray:
        """Return the picture of a pose, ``(height, width, 3)`` uint8."""
        self._data.qpos[:] = qpos
        if mocap is not None:
            self._data.mocap_pos[:], self._data.mocap_quat[:] = mocap
        if self._light >= 0:  # shadows are cast only near the light
            self._model.light_pos0[self._light] = self._model.light_pos[self._light] = camera.lookat + _LIGHT_PLACE
        mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_comPos(self._model, self._data)
        mujoco.mj_camlight(self._model, self._data)
        view = mujoco.MjvCamera()
        view.lookat[:] = camera.lookat
        view.distance, view.azimuth, view.elevation = camera.distance, camera.azimuth, camera.elevation
        self._renderer.update_scene(self._data, view, self._option)
        for marker in markers:
            draw_marker(self._renderer.scene, marker)
        picture = self._renderer.render()
        if self._sky is not None:  # pixels that nothing covers are black
            empty = ~picture.any(axis=2)
            picture[empty] = self._sky[empty]
        return picture

    def close(self) -> None:
        """Free the OpenGL context."""
        self._renderer.close()


def draw_marker(scene: Any, marker: Marker) -> None:
    """Add a marker to a scene, unless the scene is full."""
    empty = isinstance(marker, Arrow) and not np.linalg.norm(marker.vector) > 1e-6
    if scene.ngeom >= scene.maxgeom or empty:
        return
    geom, rgba = scene.geoms[scene.ngeom], np.array(marker.rgba, dtype=np.float32)
    if isinstance(marker, Cube):
        size = np.full(3, marker.half)
        mujoco.mjv_initGeom(geom, mujoco.mjtGeom.mjGEOM_BOX, size, marker.centre, marker.axes.ravel(), rgba)
    else:
        kind = mujoco.mjtGeom.mjGEOM_ARROW
        mujoco.mjv_initGeom(geom, kind, np.zeros(3), np.zeros(3), np.eye(3).ravel(), rgba)
        start = np.asarray(marker.start, dtype=np.float64)
        mujoco.mjv_connector(geom, kind, marker.width, start, start + marker.vector)
    scene.ngeom += 1


def axes_of(quat: np.ndarray) -> np.ndarray:
    """Return the rotation matrix ``(3, 3)`` of a quaternion wxyz."""
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, np.asarray(quat, dtype=np.float64))
    return matrix.reshape(3, 3)


def packed_model(model: Any) -> bytes:
    """Return a model in MuJoCo's binary format."""
    content = np.empty(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, content)
    return content.tobytes()


def load_model(path: Path) -> Any:
    """Read a file with the result of ``packed_model``."""
    return mujoco.MjModel.from_binary_path(str(path))
