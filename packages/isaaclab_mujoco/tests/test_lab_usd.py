"""A robot's own USD file in Isaac Lab's scenes: as the MJCF of the same robot, and which file answers a config."""

from types import SimpleNamespace

import pytest
import torch

from isaaclab_mujoco.assets import find, robots
from isaaclab_mujoco.errors import AssetNotFound, NotSupported, UserError
from mujoco_batches.assets import usd

needs_usd = pytest.mark.skipif(usd.PathFinder.find_spec("pxr") is None, reason="usd-core is not installed")

# the tests' cart-pole: a rail, a cart and a capsule, whose numbers MuJoCo computes from shapes and masses
CARTPOLE = """#usda 1.0
(
    defaultPrim = "cartpole"
    metersPerUnit = 1
    upAxis = "Z"
)
def Xform "cartpole" (prepend apiSchemas = ["PhysicsArticulationRootAPI"])
{
    def Xform "rail" (prepend apiSchemas = ["PhysicsRigidBodyAPI", "PhysicsMassAPI"])
    {
        float physics:mass = 1
        def Cube "shape" (prepend apiSchemas = ["PhysicsCollisionAPI"])
        {
            double3 xformOp:scale = (2, 0.01, 0.01)
            uniform token[] xformOpOrder = ["xformOp:scale"]
        }
    }
    def Xform "cart" (prepend apiSchemas = ["PhysicsRigidBodyAPI", "PhysicsMassAPI"])
    {
        float physics:mass = 1
        def Cube "shape" (prepend apiSchemas = ["PhysicsCollisionAPI"])
        {
            double3 xformOp:scale = (0.2, 0.1, 0.1)
            uniform token[] xformOpOrder = ["xformOp:scale"]
        }
    }
    def Xform "pole" (prepend apiSchemas = ["PhysicsRigidBodyAPI", "PhysicsMassAPI"])
    {
        float physics:mass = 0.5
        def Capsule "shape" (prepend apiSchemas = ["PhysicsCollisionAPI"])
        {
            double height = 0.6
            double radius = 0.02
            double3 xformOp:translate = (0, 0, 0.3)
            uniform token[] xformOpOrder = ["xformOp:translate"]
        }
    }
    def PhysicsFixedJoint "root_joint"
    {
        rel physics:body1 = </cartpole/rail>
    }
    def PhysicsPrismaticJoint "slider"
    {
        rel physics:body0 = </cartpole/rail>
        rel physics:body1 = </cartpole/cart>
    }
    def PhysicsRevoluteJoint "hinge"
    {
        rel physics:body0 = </cartpole/cart>
        rel physics:body1 = </cartpole/pole>
        uniform token physics:axis = "Y"
        float drive:angular:physics:stiffness = 0.1
    }
}
"""


@needs_usd
def test_a_robot_of_a_usd_file_moves_as_that_of_an_mjcf(make, tmp_path):
    """Omniverse's modules stay stand-ins for Isaac Lab while OpenUSD reads the file."""
    import lab_configs
    import pxr

    seen = []
    (tmp_path / "rail.usda").write_text(CARTPOLE)
    for file in (lab_configs.CARTPOLE.spawn.usd_path, str(tmp_path / "rail.usda")):
        cfg = lab_configs.CartpoleEnvCfg()
        cfg.scene.robot.spawn.usd_path = file
        env = make(cfg)
        env.reset()
        robot = env.scene["robot"]
        assert (robot.joint_names, robot.body_names) == (["slider", "hinge"], ["rail", "cart", "pole"])
        for k in range(20):
            env.step(torch.linspace(-1, 1, 4)[:, None] * (-1) ** (k // 7))
        seen.append((robot.data.joint_pos.clone(), robot.data.joint_vel.clone(), robot.data.body_pos_w.clone()))
        env.close()
        assert robot.is_fixed_base and float(robot.data.joint_vel.abs().max()) > 0.1
    for mjcf, own in zip(*seen):
        torch.testing.assert_close(mjcf, own, rtol=0, atol=2e-5)
    assert not hasattr(pxr, "__file__") and not pxr.Usd.Stage.Open("anything")


@needs_usd
def test_gains_that_a_config_leaves_open_are_those_of_the_file(make, tmp_path):
    import lab_configs

    (tmp_path / "rail.usda").write_text(CARTPOLE)
    cfg = lab_configs.CartpoleEnvCfg()
    cfg.scene.robot.spawn.usd_path = str(tmp_path / "rail.usda")
    cfg.scene.robot.actuators["pole"].stiffness = None
    gains = make(cfg).scene["robot"].data.joint_stiffness
    assert gains[0].tolist() == pytest.approx([0.0, 0.1 * 180 / torch.pi])  # N m per degree in the file


@needs_usd
def test_a_config_fixes_or_frees_the_root_of_a_usd_file(tmp_path):
    (tmp_path / "rail.usda").write_text(CARTPOLE)
    for asked in (None, True, False):
        cfg = SimpleNamespace(articulation_props=SimpleNamespace(fix_root_link=asked, enabled_self_collisions=None))
        assert robots.from_file(tmp_path / "rail.usda", "x.usd", cfg).fixed == (asked is not False)
    (tmp_path / "wrong.usda").write_text(CARTPOLE.replace("PhysicsRevoluteJoint", "PhysicsSphericalJoint"))
    with pytest.raises(UserError, match=r"^x\.usd: .*hinge: PhysicsSphericalJoint is not supported"):
        robots.from_file(tmp_path / "wrong.usda", "x.usd", cfg)


@needs_usd
def test_a_config_changes_the_mass_of_one_body_and_nothing_else_of_a_usd_file(tmp_path):
    arm, ball = tmp_path / "rail.usda", tmp_path / "ball.usda"
    arm.write_text(CARTPOLE)
    ball.write_text(
        '#usda 1.0\n(\n defaultPrim = "ball"\n metersPerUnit = 1\n)\n'
        'def Sphere "ball" (prepend apiSchemas = ["PhysicsRigidBodyAPI", "PhysicsCollisionAPI"])\n{\n}\n'
    )
    for words, file, cfg in (
        ("scale=", ball, {"scale": (2.0, 2.0, 2.0)}),
        ("variants=", ball, {"variants": {"Gripper": "Robotiq_2F_85"}}),
        ("mass_props is supported for one rigid body", arm, {"mass_props": SimpleNamespace(mass=7.0, density=None)}),
    ):
        with pytest.raises(NotSupported, match=rf"^x\.usd: {words}"):
            robots.from_file(file, "x.usd", SimpleNamespace(**cfg))
    for mass, density, expected in ((7.0, None, 7.0), (None, 300.0, 400 * torch.pi), (None, None, 4000 / 3 * torch.pi)):
        own = SimpleNamespace(mass=mass, density=density)
        cfg = SimpleNamespace(scale=(1.0, 1.0, 1.0), variants=None, mass_props=own)
        assert robots.from_file(ball, "x.usd", cfg).model.body_mass[1] == pytest.approx(expected, rel=1e-6)


def test_a_local_usd_answers_where_no_urdf_or_mjcf_has_its_name(tmp_path, monkeypatch):
    monkeypatch.setattr(find, "given", {})
    monkeypatch.setattr(find, "roots", [])
    own = tmp_path / "usd" / "dog.usd"
    own.parent.mkdir()
    own.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    monkeypatch.setattr(usd, "PathFinder", SimpleNamespace(find_spec=lambda name: None))
    with pytest.raises(AssetNotFound, match=r"as to the USD, .*pip install usd-core\. Give one"):
        find.robot_file(str(own))
    monkeypatch.setattr(usd, "PathFinder", SimpleNamespace(find_spec=lambda name: name))
    with pytest.raises(AssetNotFound, match=r"as to the USD, .*git lfs pull\. Give one"):
        find.robot_file(str(own))
    own.write_bytes(b"PXR-USDC")
    assert find.robot_file(str(own)) == own
    find._files.cache_clear()
    (tmp_path / "dog.urdf").write_text("<robot/>")
    assert find.robot_file(str(own)) == tmp_path / "dog.urdf"


def test_a_robot_of_a_server_is_answered_by_a_checkout_of_menagerie(tmp_path, monkeypatch):
    monkeypatch.setattr(find, "given", {})
    monkeypatch.setattr(find, "roots", [])
    server = "https://server/Assets/Isaac/5.1/Isaac/IsaacLab/Robots/Unitree/H1"
    monkeypatch.delenv(find.VARIABLE, raising=False)
    with pytest.raises(AssetNotFound, match=r"Menagerie's \(MENAGERIE_ROOT is not set\)\. Give one"):
        find.robot_file(f"{server}/h1.usd")
    monkeypatch.setenv(find.VARIABLE, str(tmp_path))
    with pytest.raises(UserError, match=r"h1\.usd: .* has no unitree_h1/h1\.xml"):
        find.robot_file(f"{server}/h1.usd")
    own = tmp_path / "unitree_h1" / "h1.xml"
    own.parent.mkdir()
    own.write_text("<mujoco/>")
    for name in ("h1.usd", "h1_minimal.usd"):
        assert find.robot_file(f"{server}/{name}") == own
    with pytest.raises(AssetNotFound):
        find.robot_file(f"{server}_2/h1_2.usd")
