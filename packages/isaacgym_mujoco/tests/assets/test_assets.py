"""Assets from URDF and MJCF: orders, masses, inertias, limits and drives, against numbers computed by hand."""

import math

import numpy as np
import pytest
from isaacgym_scene import LOPSIDED, TREE, Scene, corners, dae, gym, link, load, options, pose, robot

from isaacgym_mujoco.api import gymapi
from mujoco_batches.assets import collada

MJCF = """
<mujoco>
  <compiler angle="degree" coordinate="local"/>
  <option apirate="5" timestep="0.5"/>
  <default><geom density="5" contype="1" conaffinity="1"/><joint armature="0.02" damping="0.3"/></default>
  <asset><material name="skin"/></asset>
  <worldbody>
    <light pos="0 0 4"/>
    <geom type="plane" size="9 9 1" material="grid"/>
    <body name="torso" pos="0 0 3">
      <freejoint/>
      <geom type="sphere" size="0.5" material="skin"/>
      <body name="right"><joint name="hip" range="-30 60" limited="true" axis="0 0 1"/>
        <joint name="knee" axis="0 1 0" stiffness="4"/><geom type="box" size="0.1 0.2 0.3" density="100"/></body>
      <body name="left"><joint name="hip" axis="0 0 1"/><geom type="sphere" size="0.1"/>
        <geom type="sphere" size="0.4" contype="0" conaffinity="0"/></body>
    </body>
  </worldbody>
  <actuator>
    <position joint="knee" kp="12" forcerange="-3 3"/><motor joint="hip" gear="150"/><motor joint="gone" gear="1"/>
  </actuator>
</mujoco>
"""


def masses(asset):
    return {n: p.mass for n, p in zip(asset.body_names, asset.body_properties())}


def test_urdf_bodies_are_depth_first_with_children_sorted_by_joint_name(tmp_path):
    asset = load(tmp_path, TREE, fix_base_link=True)
    assert gym.get_asset_rigid_body_names(asset) == ["base", "a_arm", "tip", "z_arm", "pad"]
    assert gym.get_asset_dof_names(asset) == ["j_a", "j_z"]
    assert gym.get_asset_joint_names(asset) == ["j_a", "weld", "j_z", "keep"]
    assert gym.find_asset_rigid_body_index(asset, "z_arm") == 3
    assert gym.find_asset_rigid_body_index(asset, "nothing") == -1


def test_links_without_inertial_use_shape_volume_and_density(tmp_path):
    found = masses(load(tmp_path, TREE, density=500.0))
    assert found["z_arm"] == pytest.approx(500 * 0.1 * 0.2 * 0.3)
    assert found["a_arm"] == pytest.approx(500 * 4 / 3 * math.pi * 0.1**3)
    assert (found["base"], found["tip"]) == (2, 3)
    box = load(tmp_path, TREE, density=500.0).body_properties()[3]
    assert box.inertia.x.x == pytest.approx(box.mass / 12 * (0.2**2 + 0.3**2))
    assert box.inertia.z.z == pytest.approx(box.mass / 12 * (0.1**2 + 0.2**2))


def test_collapse_fixed_joints_merges_masses_and_inertias(tmp_path):
    asset = load(tmp_path, TREE, density=500.0, collapse_fixed_joints=True)
    assert asset.body_names == ["base", "a_arm", "z_arm", "pad"]
    ball = 500 * 4 / 3 * math.pi * 0.1**3
    arm = asset.body_properties()[1]
    assert arm.mass == pytest.approx(ball + 3)
    # the tip's frame is at z = 1, turned by 90 degrees about y: its z axis, with the centre at 0.5, is the arm's x
    com = 3 * np.array([0.5, 0, 1]) / (ball + 3)
    assert list(arm.com) == pytest.approx(com)
    inertia = np.diag([0.4 * ball * 0.1**2] * 3) + np.diag([0.1, 0.2, 0.3])
    for mass, point in ((ball, np.zeros(3)), (3, np.array([0.5, 0, 1]))):
        d = point - com
        inertia += mass * (d @ d * np.eye(3) - np.outer(d, d))
    found = np.array([list(arm.inertia.x), list(arm.inertia.y), list(arm.inertia.z)])
    assert found == pytest.approx(inertia, abs=1e-9)


def test_joint_properties_come_from_the_urdf(tmp_path):
    rows = gym.get_asset_dof_properties(
        load(tmp_path, TREE, armature=0.125, default_dof_drive_mode=gymapi.DOF_MODE_POS)
    )
    assert rows["lower"].tolist() == pytest.approx([0.1, -1])
    assert rows["upper"].tolist() == pytest.approx([0.4, 2])
    assert rows["effort"].tolist() == [9, 7] and rows["velocity"].tolist() == [2, 3]
    assert rows["damping"].tolist() == [0, 0.5] and rows["friction"].tolist() == [0, 0.25]
    assert rows["hasLimits"].all() and (rows["driveMode"] == gymapi.DOF_MODE_POS).all()
    assert rows["armature"].tolist() == [0.125, 0.125]


def test_inertial_with_mass_only_scales_the_shape_inertia(tmp_path):
    text = """<robot name="r"><link name="cart"><inertial><mass value="6"/></inertial>
        <collision><geometry><box size="1 2 3"/></geometry></collision></link></robot>"""
    properties = load(tmp_path, text).body_properties()[0]
    assert properties.mass == 6 and properties.inertia.x.x == pytest.approx(6 / 12 * (4 + 9))


def test_collision_without_a_shape_is_skipped(tmp_path):
    """As in humanplus' H1."""
    text = """<robot name="r"><link name="hand"><collision/><collision><geometry/></collision>
        <collision><geometry><sphere radius="0.1"/></geometry></collision></link></robot>"""
    assert len(load(tmp_path, text).shapes) == 1


def test_link_named_world_keeps_its_name(tmp_path):
    """MuJoCo reserves it; the arms of dynamic_handover have one."""
    asset = load(tmp_path, TREE.replace('"base"', '"world"'), fix_base_link=True)
    assert gym.get_asset_rigid_body_names(asset)[0] == "world"
    scene = Scene((asset, pose()), (asset, pose(x=5.0)))
    scene.step()
    assert gym.find_actor_rigid_body_handle(scene.envs[0], 1, "world") == 5


def test_negative_density_is_the_default(tmp_path):
    """As in AirGym."""
    assert masses(load(tmp_path, TREE, density=-1.0)) == masses(load(tmp_path, TREE))


def test_collada_mesh_is_placed_by_its_scene(tmp_path):
    """As RoboDuet's and Tiago's collision meshes: in centimetres, below two nodes."""
    half = corners([-1, -2, -3], [1, 2, 3])
    inner = '<node><translate>10 0 0</translate><scale>2 1 1</scale><instance_geometry url="#g"/></node>'
    scene = f"<node><rotate>0 0 1 90</rotate><matrix>1 0 0 0 0 1 0 0 0 0 1 7 0 0 0 1</matrix>{inner}</node>"
    (tmp_path / "box.dae").write_text(dae(scene, half))
    body = load(tmp_path, robot(link("l", shape='mesh filename="box.dae" scale="10 10 10"'))).body_properties()[0]
    assert body.mass == pytest.approx(1000 * 0.4 * 0.4 * 0.6, rel=1e-4)
    assert list(body.com) == pytest.approx([0, 1.0, 0.7], abs=1e-5)  # x is turned to y
    (tmp_path / "box.dae").write_text("<COLLADA/>")
    with pytest.raises(gymapi.AssetError, match=r"box\.dae: no triangle is in its scene"):
        collada.read.cache_clear()
        load(tmp_path, robot(link("l", shape='mesh filename="box.dae"')))


NODE = '<node>{}<instance_geometry url="#g"/></node>'
CUBE = corners([-1, -1, -1], [1, 1, 1]) * 100.0


def loaded_dae(folder, name, *args, **kwargs):
    (folder / name).write_text(dae(*args, **kwargs))
    return load(folder, robot(link("l", shape=f'mesh filename="{name}"'))).body_properties()[0]


def test_collada_nodes_are_placed_by_their_names(tmp_path):
    node = NODE.format("<translate>0 300 0</translate>").replace("<node", '<node id="n"')
    scene = '<node><translate>500 0 0</translate><instance_node url="#n"/></node>'
    body = loaded_dae(tmp_path, "named.dae", scene, CUBE, f"<library_nodes>{node}</library_nodes>")
    assert list(body.com) == pytest.approx([5, 3, 0], abs=1e-5) and body.mass == pytest.approx(8000, rel=1e-4)
    body = loaded_dae(tmp_path, "still.dae", NODE.format("<rotate>0 0 0 0</rotate>"), CUBE)
    assert list(body.com) == pytest.approx([0, 0, 0], abs=1e-5) and body.mass == pytest.approx(8000, rel=1e-4)


@pytest.mark.parametrize(
    ("scene", "points", "message"),
    [
        ("<node/>", CUBE, "no triangle is in its scene"),
        (NODE.format("").replace("#g", "#h"), CUBE, "no triangle is in its scene; .*h not found"),
        ('<node id="n"><instance_node url="#n"/></node>', CUBE, "(no triangle is in its scene|not read as Collada)"),
        (NODE.format(""), CUBE[:2], "no triangle is in its scene"),
        (NODE.format(""), CUBE * np.inf, "its vertices are not finite"),
        (NODE.format(""), np.where(CUBE > 0, CUBE, np.nan), "its vertices are not finite"),
    ],
)
def test_invalid_collada_mesh_is_an_error_with_its_file(tmp_path, scene, points, message):
    with pytest.raises(gymapi.AssetError, match=rf"bad\.dae: {message}"):
        loaded_dae(tmp_path, "bad.dae", scene, points)


def _placing(levels, leaf):
    """A library of nodes, each of which places the one before it twice, and the last one's name."""
    nodes = [f'<node id="n0">{leaf}</node>']
    for k in range(1, levels):
        nodes.append(f'<node id="n{k}">{f"""<node><instance_node url="#n{k - 1}"/></node>""" * 2}</node>')
    return f"<library_nodes>{''.join(nodes)}</library_nodes>", f'<node><instance_node url="#n{levels - 1}"/></node>'


@pytest.mark.parametrize("leaf", ["", '<instance_geometry url="#g"/>'])
def test_collada_nodes_that_place_each_other_billions_of_times_are_refused(tmp_path, leaf):
    library, scene = _placing(40, leaf)
    with pytest.raises(gymapi.AssetError, match=r"bad\.dae: its scene has more than 10,000 nodes"):
        loaded_dae(tmp_path, "bad.dae", scene, CUBE, library)
    library, scene = _placing(5, '<instance_geometry url="#g"/>')
    assert loaded_dae(tmp_path, "good.dae", scene, CUBE, library).mass == pytest.approx(8000, rel=1e-4)


def test_collada_scenes_of_too_many_triangles_and_levels_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(collada, "MOST_CORNERS", 36 * 20)
    with pytest.raises(
        gymapi.AssetError, match=r"many\.dae: its scene has more than 720 corners of triangles: simplify"
    ):
        loaded_dae(tmp_path, "many.dae", NODE.format("") * 21, CUBE)
    assert loaded_dae(tmp_path, "fewer.dae", NODE.format("") * 20, CUBE).mass == pytest.approx(8000, rel=1e-4)
    with pytest.raises(gymapi.AssetError, match=r"deep\.dae: not read as Collada: maximum recursion"):
        loaded_dae(tmp_path, "deep.dae", "<node>" * 2000 + "</node>" * 2000, CUBE)


@pytest.mark.parametrize(
    ("counts", "numbers", "message"),
    [
        ("2000000000", "0 1 2", "more corners"),
        ("3 9", "0 1 2 3 4 5 6", ""),
        ("3", "0 1 -1", "a triangle has the vertex -1"),
    ],
)
def test_collada_polygons_with_wrong_corners_are_an_error_with_their_file(tmp_path, counts, numbers, message):
    corner = f'<input semantic="VERTEX" source="#v" offset="0"/><vcount>{counts}</vcount><p>{numbers}</p>'
    with pytest.raises(gymapi.AssetError, match=rf"bad\.dae: not read as Collada: .*{message}"):
        loaded_dae(tmp_path, "bad.dae", NODE.format(""), CUBE, faces=f"<polylist>{corner}</polylist>")


def test_collada_mesh_needs_no_material(tmp_path):
    bound = '<technique_common><instance_material symbol="a" target="#a"/></technique_common>'
    material = f"<bind_material>{bound}</bind_material>"
    scene = f'<node><instance_geometry url="#g">{material}</instance_geometry></node>'
    body = loaded_dae(tmp_path, "bare.dae", scene, CUBE, "<library_images><image/></library_images>")
    assert body.mass == pytest.approx(8000, rel=1e-4)


def test_invalid_inertia_is_rebuilt(tmp_path):
    text = LOPSIDED.replace('ixx="0.01"', 'ixx="-0.01"')
    moments = load(tmp_path, text).body_properties()[0].inertia
    assert min(moments.x.x, moments.y.y, moments.z.z) > 0


def test_replace_cylinder_with_capsule_adds_the_caps(tmp_path):
    text = robot(link("l", shape='cylinder radius="0.1" length="0.6"'))
    cylinder = 1000 * math.pi * 0.1**2 * 0.6
    assert masses(load(tmp_path, text))["l"] == pytest.approx(cylinder)
    ball = 1000 * 4 / 3 * math.pi * 0.1**3
    assert masses(load(tmp_path, text, replace_cylinder_with_capsule=True))["l"] == pytest.approx(cylinder + ball)


def test_mjcf_is_loaded_as_one_robot_without_its_scene(tmp_path):
    asset = load(tmp_path, MJCF)
    assert asset.body_names == ["torso", "right", "left"]
    assert asset.dof_names == ["hip", "knee", "hip#1"]  # the same name twice, and the root's own joint is gone
    assert gym.get_asset_rigid_shape_count(asset) == 3  # neither the floor nor the picture
    found = masses(asset)
    assert found["torso"] == pytest.approx(5 * 4 / 3 * math.pi * 0.5**3)
    assert found["right"] == pytest.approx(100 * 8 * 0.1 * 0.2 * 0.3)
    assert found["left"] == pytest.approx(5 * 4 / 3 * math.pi * 0.1**3)
    rows = gym.get_asset_dof_properties(asset)
    assert [rows["lower"][0], rows["upper"][0]] == pytest.approx([-math.pi / 6, math.pi / 3])
    assert rows["hasLimits"].tolist() == [True, False, False]
    assert rows["armature"].tolist() == pytest.approx([0.02] * 3)
    assert rows["damping"].tolist() == pytest.approx([0.3] * 3)


def test_moving_body_without_mass_but_for_visual_geoms_is_named(tmp_path, caplog):
    """A wheel's mass is that of a picture, an arm has an inertial, a hand collides, a plate does not move."""
    visual = '<geom type="box" size="1 1 1" mass="2" contype="0" conaffinity="0"/>'
    inertial = '<inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>'
    bodies = "".join(
        f'<body name="{name}">{joint}{more}{visual}</body>'
        for name, joint, more in (
            ("wheel", "<joint/>", ""),
            ("arm", "<joint/>", inertial),
            ("hand", "<joint/>", '<geom size="1"/>'),
            ("plate", "", ""),
        )
    )
    load(tmp_path, f'<mujoco><worldbody><body name="base">{inertial}{bodies}</body></worldbody></mujoco>')
    assert [x.message.split(": ", 1)[1] for x in caplog.records] == [
        "no mass is left of wheel, whose geoms collide with nothing: give each an <inertial>"
    ]


def test_mjcf_actuators_give_drives_and_gears_in_file_order(tmp_path):
    asset = load(tmp_path, MJCF)
    assert [gym.get_asset_actuator_joint_name(asset, k) for k in range(2)] == ["knee", "hip"]
    assert gym.get_asset_actuator_properties(asset)[1].motor_effort == 150
    knee = gym.get_asset_dof_properties(asset)[1]
    assert knee["driveMode"] == gymapi.DOF_MODE_POS and (knee["stiffness"], knee["effort"]) == (12, 3)
    assert gym.get_asset_dof_properties(asset)[0]["driveMode"] == gymapi.DOF_MODE_NONE


def test_primitives_have_the_mass_of_their_volume():
    box = gym.create_box(None, 0.2, 0.4, 0.6, options(density=100.0))
    ball = gym.create_sphere(None, 0.3, options(density=100.0))
    assert masses(box)["box"] == pytest.approx(100 * 0.2 * 0.4 * 0.6)
    assert masses(ball)["sphere"] == pytest.approx(100 * 4 / 3 * math.pi * 0.3**3)


def test_box_without_height_is_a_thin_plate(tmp_path):
    flat = gym.create_box(None, 0.3, 0.2, 0.0, options(fix_base_link=True))
    ball = gym.create_sphere(None, 0.05, options(density=1000.0))
    scene = Scene((flat, pose(0, 0, 0.4)), (ball, pose(0, 0, 0.46)))
    scene.step(100)
    assert scene.root[1::2, 2].tolist() == pytest.approx([0.45] * 2, abs=1e-3)
    assert masses(flat)["box"] == pytest.approx(1000 * 0.3 * 0.2 * 1e-4)


HEXAGON = [(round(0.5 * math.cos(k * math.pi / 3), 5), 0, round(0.5 * math.sin(k * math.pi / 3), 5)) for k in range(6)]


# the moments of inertia of a flat body are A + B = C, which fails by rounding
@pytest.mark.parametrize(
    ("corners", "area"), [([(0, 0, 1), (2, 0, 1), (2, 1, 1), (0, 1, 1)], 2.0), (HEXAGON, 1.5 * 3**0.5 * 0.5**2)]
)
def test_flat_mesh_is_a_thin_plate(tmp_path, corners, area):
    lines = [f"v {x} {y} {z}" for x, y, z in corners] + [f"f 1 {k} {k + 1}" for k in range(2, len(corners))]
    (tmp_path / "flat.obj").write_text("\n".join(lines))
    text = robot(link("lid", shape='mesh filename="flat.obj" scale="0.1 0.1 0.1"', at=(0, 0, 0.3)))
    lid = load(tmp_path, text, fix_base_link=True, density=1000.0)
    assert masses(lid)["lid"] == pytest.approx(1000 * area * 0.01 * 1e-4, rel=1e-3)
    if area == 2.0:
        ball = gym.create_sphere(None, 0.02, options(density=1000.0))
        scene = Scene((lid, pose()), (ball, pose(0.1, 0.05, 0.43)))
        scene.step(100)
        assert scene.root[1::2, 2].tolist() == pytest.approx([0.3 + 0.1 + 0.02] * 2, abs=1e-3)


LINKS = "<link name='a'/><link name='b'/>"
MISSING = "<link name='a'><collision><geometry><mesh filename='package://x/y.obj'/></geometry></collision></link>"
FLOATING = "<joint name='j' type='floating'><parent link='a'/><child link='b'/></joint>"


@pytest.mark.parametrize(
    "text, words",
    [
        (f"<robot name='r'>{LINKS}</robot>", ["one link must be the root", "a, b"]),
        ("<robot", ["not XML"]),
        (f"<robot name='r'>{MISSING}</robot>", ["package://x/y.obj", "is missing"]),
        (f"<robot name='r'>{LINKS}{FLOATING}</robot>", ["joint j", "floating"]),
    ],
)
def test_invalid_file_is_refused_with_its_name(tmp_path, text, words):
    with pytest.raises(gymapi.AssetError) as caught:
        load(tmp_path, text)
    for word in ["asset.urdf", *words]:
        assert word in str(caught.value)


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(gymapi.AssetError, match="the asset does not exist"):
        gym.load_asset(None, str(tmp_path), "nothing.urdf", None)


def test_transforms_compose_and_invert():
    a = gymapi.Transform(gymapi.Vec3(1, 2, 3), gymapi.Quat.from_axis_angle(gymapi.Vec3(0, 0, 1), math.pi / 2))
    assert list((a * pose(1, 0, 0)).p) == pytest.approx([1, 3, 3])
    back = a * a.inverse()
    assert list(back.p) == pytest.approx([0, 0, 0]) and list(back.r) == pytest.approx([0, 0, 0, 1])
    assert list(gymapi.Quat.from_euler_zyx(0.1, -0.2, 0.3).to_euler_zyx()) == pytest.approx([0.1, -0.2, 0.3])


ROTATED = """
<mujoco>
  <worldbody>
    <body name="base" pos="1 2 3" euler="90 0 0">
      <inertial pos="0 0 0.5" mass="2" diaginertia="3 2 1.5"/>
      <geom name="tip" type="sphere" size="0.1" pos="0 0 1"/>
      <body name="arm" pos="0 0 2"><joint name="hinge" axis="0 0 1"/><geom type="sphere" size="0.1" mass="1"/></body>
    </body>
  </worldbody>
</mujoco>
"""


def test_mjcf_root_rotation_is_applied_and_its_position_ignored(tmp_path):
    asset = load(tmp_path, ROTATED)
    base, arm = asset.rest_poses()
    assert (base.p.x, base.p.y, base.p.z, base.r.w) == (0, 0, 0, 1)  # the frame of the actor
    assert (arm.p.x, arm.p.y, arm.p.z) == pytest.approx((0, -2, 0))  # 90 degrees about x turn z to -y
    own = asset.body_properties()[0]
    assert (own.mass, own.com.x, own.com.y, own.com.z) == pytest.approx((2, 0, -0.5, 0))
    assert [own.inertia.x.x, own.inertia.y.y, own.inertia.z.z] == pytest.approx([3, 1.5, 2])
    assert asset.model.geom_pos[0] == pytest.approx([0, -1, 0])
