"""A model's copy with its assets is the same model, wherever it is loaded."""

import os

import mujoco
import numpy as np
import pytest
from PIL import Image

from envcoder_bench.sim.portable_model import portable_model

TETRA = "v 0 0 0\nv {0} 0 0\nv 0 {0} 0\nv 0 0 {0}\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"
MAIN = """<mujoco model="main">
  <compiler {compiler}/>
  <include file="parts/assets.xml"/>
  <asset>
    <mesh file="{path}tetra.obj"/>
    <mesh name="twice" file="{path}tetra.obj" scale="2 2 2"/>
    <mesh name="capital" file="{path}TETRA.OBJ"/>
    <texture name="sky" type="skybox" fileright="a.png" fileleft="b.png" fileup="a.png" filedown="a.png"
      filefront="a.png" fileback="a.png"/>
    <texture name="grain" type="2d" file="b.png"/>
    <material name="wood" texture="grain"/>
    <hfield name="hills" file="{path}hills.png" size="1 1 0.2 0.1"/>
    <model name="part" file="sub/part.xml"/>
  </asset>
  <worldbody>
    <geom type="hfield" hfield="hills" pos="0 0 -1"/>
    <body name="arm">
      <joint name="shoulder" axis="0 1 0" damping="0.01"/>
      <geom type="mesh" mesh="tetra" material="wood"/>
      <body name="hand" pos="0.3 0 0">
        <joint name="wrist" axis="0 0 1" damping="0.01"/>
        <geom type="mesh" mesh="twice"/><geom type="mesh" mesh="capital"/><geom type="mesh" mesh="included"/>
        <attach model="part" body="tip" prefix="left_"/>
      </body>
    </body>
  </worldbody>
  <actuator><position joint="shoulder" kp="3" kv="0.1"/><position joint="wrist" kp="2" kv="0.1"/></actuator>
</mujoco>
"""
INCLUDED = '<mujocoinclude><asset><mesh name="included" file="own.obj"/></asset></mujocoinclude>'
PART = """<mujoco model="part"><compiler meshdir="meshes"/>
  <asset><mesh name="tip" file="tetra.obj"/></asset>
  <worldbody>
    <body name="tip"><joint name="j" axis="1 0 0" damping="0.01"/><geom type="mesh" mesh="tip"/></body>
  </worldbody>
</mujoco>
"""
FIELDS = ("body_mass", "body_inertia", "mesh_vert", "mesh_face", "hfield_data", "tex_data")


@pytest.fixture
def folder(tmp_path):
    """A model with assets in several folders, of which three have one name, and a fourth in capitals."""
    made = tmp_path / "robot"
    sizes = {
        "meshes/tetra.obj": 0.1,
        "meshes/TETRA.OBJ": 0.12,
        "parts/own.obj": 0.09,
        "sub/meshes/tetra.obj": 0.15,
    }
    texts = {name: TETRA.format(size) for name, size in sizes.items()}
    for name, text in {**texts, "parts/assets.xml": INCLUDED, "sub/part.xml": PART}.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text, encoding="utf-8")
    pixels = np.random.default_rng(0).integers(0, 255, (3, 8, 8, 3), dtype=np.uint8)
    (made / "pictures").mkdir()
    Image.fromarray(pixels[0]).save(made / "pictures" / "a.png")
    Image.fromarray(pixels[1]).save(made / "pictures" / "b.png")
    Image.fromarray(pixels[2, ..., 0]).save(made / "meshes" / "hills.png")
    return made


def write(folder, compiler, path=""):
    (folder / "main.xml").write_text(MAIN.format(compiler=compiler, path=path), encoding="utf-8")
    return folder / "main.xml"


def put(made, place):
    for name, content in made.assets.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
    (place / "model.xml").write_text(made.xml, encoding="utf-8")
    return place / "model.xml"


def rolled(model):
    data = mujoco.MjData(model)
    data.ctrl[:] = (0.5, -0.3)
    mujoco.mj_step(model, data, 40)
    return np.concatenate((data.qpos, data.qvel))


@pytest.mark.parametrize(
    "compiler, path",
    [
        ('meshdir="meshes" texturedir="pictures"', ""),
        ('meshdir="meshes/" texturedir="pictures" strippath="true"', "nowhere/"),
        ('assetdir="{0}/both"', ""),
        ('meshdir="sub" texturedir="pictures"', "../meshes/"),
    ],
)
def test_copy_with_assets_is_the_same_model_elsewhere(folder, tmp_path, monkeypatch, compiler, path):
    if "both" in compiler:
        (folder / "meshes").rename(folder / "both")
        for picture in (folder / "pictures").iterdir():
            picture.rename(folder / "both" / picture.name)
    if "strippath" in compiler:  # MuJoCo then also forgets where an included file is
        (folder / "parts" / "own.obj").rename(folder / "meshes" / "own.obj")
    xml = write(folder, compiler.format(folder), path)
    spec = mujoco.MjSpec.from_file(str(xml))
    spec.option.timestep = 0.005
    own = spec.compile()
    made = portable_model(xml, 0.02, 4, effort=False)
    assert sorted(made.assets) == sorted(
        f"assets/{name}"
        for name in ("a.png", "b.png", "hills.png", "own.obj", "tetra.obj", "TETRA_2.OBJ", "tetra_3.obj")
    )
    copy = put(made, tmp_path / "elsewhere")
    folder.rename(tmp_path / "gone")
    monkeypatch.chdir(tmp_path)
    model = mujoco.MjModel.from_xml_path(str(copy))
    assert model.opt.timestep == 0.005
    for name in FIELDS:
        np.testing.assert_allclose(getattr(model, name), getattr(own, name), rtol=1e-5, atol=1e-9, err_msg=name)
    assert np.any(rolled(own)[:3])
    np.testing.assert_allclose(rolled(model), rolled(own), rtol=0, atol=1e-4)


def test_files_beside_the_copy_are_not_replaced(folder, tmp_path):
    xml, place = write(folder, 'meshdir="meshes" texturedir="pictures"'), tmp_path / "place"
    first = put(portable_model(xml, 0.02, 4, True, beside=place), place).read_bytes()
    again = portable_model(xml, 0.02, 4, True, beside=place)
    assert put(again, place).read_bytes() == first
    (folder / "meshes" / "tetra.obj").write_text(TETRA.format(0.2), encoding="utf-8")
    os.utime(folder / "meshes" / "tetra.obj", (0, 0))  # MuJoCo caches files by name and second
    before = {file: file.read_bytes() for file in (place / "assets").iterdir()}
    changed = put(portable_model(xml, 0.02, 4, True, beside=place), place)
    assert {file: file.read_bytes() for file in before} == before
    own, copy = (mujoco.MjModel.from_xml_path(str(file)) for file in (xml, changed))
    np.testing.assert_allclose(copy.body_mass, own.body_mass, rtol=1e-5)


def test_model_without_assets_is_one_text(tmp_path):
    xml = tmp_path / "m.xml"
    xml.write_text('<mujoco><worldbody><body name="b"><joint name="j"/><geom size="1"/></body></worldbody></mujoco>')
    assert portable_model(xml, 0.02, 4, True).assets == {}
