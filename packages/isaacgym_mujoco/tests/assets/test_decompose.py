"""Concave collision meshes as convex parts. ``vhacdx`` is optional: a module of that name stands in for it here."""

import importlib
import sys

import numpy as np
import pytest
from isaacgym_scene import Scene, boxes_obj, corners, dae, gym, link, load, pose, robot

from isaacgym_mujoco.api import gymapi
from mujoco_batches.assets import decompose

TUB = robot(link("tub", shape='mesh filename="tub.obj" scale="0.5 0.5 0.5"'))
# boxes by their corners: a floor and two walls
BOXES = [((-1, -1, 0), (1, 1, 0.2)), ((-1, -1, 0.2), (-0.8, 1, 2)), ((0.8, -1, 0.2), (1, 1, 2))]


def tub(folder, *boxes):
    (folder / "tub.obj").write_text(boxes_obj(*(boxes or BOXES)))


@pytest.fixture
def vhacdx(tmp_path, monkeypatch):
    """A decomposition that knows the tub's boxes: eight vertices each, in the file's order."""
    place = tmp_path / "site"
    place.mkdir()
    (place / "vhacdx.py").write_text(
        "def compute_vhacd(points, faces, **limits):\n"
        "    assert points.shape[0] == 24 and len(faces) == 36 and limits['maxConvexHulls'] == 5\n"
        "    return [(points[k : k + 8], faces[:12]) for k in (0, 8, 16)]\n"
    )
    monkeypatch.syspath_prepend(str(place))
    decompose.parts.cache_clear()
    yield
    sys.modules.pop("vhacdx", None)
    decompose.parts.cache_clear()
    importlib.invalidate_caches()


def options(**values):
    params = gymapi.VhacdParams()
    params.max_convex_hulls = 5
    return {"fix_base_link": True, "vhacd_enabled": True, "vhacd_params": params, **values}


def test_ball_falls_into_a_decomposed_tub(tmp_path, vhacdx):
    tub(tmp_path)
    asset = load(tmp_path, TUB, **options())
    assert gym.get_asset_rigid_shape_count(asset) == 3
    ball = gym.create_sphere(None, 0.1, gymapi.AssetOptions())
    scene = Scene((asset, pose()), (ball, pose(0, 0, 0.5)))
    scene.step(200)
    assert scene.root[1, 2].item() == pytest.approx(0.2, abs=2e-3)  # the floor's height, 0.1, and the radius


def test_mesh_without_decomposition_is_its_convex_hull(tmp_path, monkeypatch):
    tub(tmp_path)
    monkeypatch.setattr(decompose, "available", lambda: False)
    asset = load(tmp_path, TUB, **options())
    assert gym.get_asset_rigid_shape_count(asset) == 1
    ball = gym.create_sphere(None, 0.1, gymapi.AssetOptions())
    scene = Scene((asset, pose()), (ball, pose(0, 0, 1.12)))
    scene.step(200)
    assert scene.root[1, 2].item() == pytest.approx(1.1, abs=2e-3)


@pytest.mark.parametrize("kind", ["triangles", "polylist"])
def test_collada_mesh_is_decomposed(tmp_path, vhacdx, kind):
    faces = [line.split()[1:] for line in boxes_obj(*BOXES).splitlines() if line.startswith("f")]
    corner = " ".join(f"{int(number) - 1} 0" for face in faces for number in face)
    inputs = '<input semantic="VERTEX" source="#v" offset="0"/><input semantic="NORMAL" source="#p" offset="1"/>'
    counts = f"<vcount>{'3 ' * 36}</vcount>" if kind == "polylist" else ""
    points = np.concatenate([corners(*box) for box in BOXES]) * 100.0
    text = dae(
        '<node><scale>-1 1 1</scale><instance_geometry url="#g"/></node>',
        points,
        faces=f"<{kind}>{inputs}{counts}<p>{corner}</p></{kind}>",
    )
    (tmp_path / "tub.dae").write_text(text)
    vertices, triangles = decompose.read(tmp_path / "tub.dae", (0.5, 0.5, 0.5))
    a, b, c = (vertices[triangles[:, k]] for k in range(3))
    volume = np.einsum("ij,ij->i", a, np.cross(b, c)).sum() / 6
    assert volume == pytest.approx(0.125 * (0.8 + 2 * 0.72)) and len(triangles) == 36  # outward, though mirrored
    asset = load(tmp_path, TUB.replace(".obj", ".dae"), **options())
    assert gym.get_asset_rigid_shape_count(asset) == 3


def test_convex_mesh_stays_one_shape(tmp_path, vhacdx):
    tub(tmp_path, ((-1, -1, -1), (1, 1, 1)))
    assert gym.get_asset_rigid_shape_count(load(tmp_path, TUB, **options())) == 1


def test_mesh_is_read_in_its_own_frame(tmp_path):
    tub(tmp_path)
    vertices, triangles = decompose.read(tmp_path / "tub.obj", (0.5, 0.5, 2.0))
    wanted = np.concatenate([corners(*box) for box in BOXES]) * [0.5, 0.5, 2.0]
    found = {tuple(v) for v in vertices.round(5)}
    assert found == {tuple(v) for v in wanted.round(5)} and len(triangles) == 36
