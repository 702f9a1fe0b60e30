"""Robots whose policies bring their own numbers: a small biped, with files as Unitree's runtime and mjlab have them."""

import math
from dataclasses import replace

import pytest
import torch
import yaml
from grids import part

from envcoder_bench.core.errors import UserError
from envcoder_bench.grid.batch import Batch, select
from envcoder_bench.grid.deployments import read_deployment
from envcoder_bench.grid.inputs import Inputs
from envcoder_bench.grid.policies import LoadedPolicy, load_policy_file
from envcoder_bench.grid.robots import base_height_of, find_robot
from envcoder_bench.grid.settings import compose_settings
from envcoder_bench.terrain.arenas import Arena, Zone

LEG = """<body name="{side}_thigh" pos="0 {y} 0"><joint name="{side}_hip" axis="0 1 0" range="-1 1"/>
<geom type="capsule" size=".04" fromto="0 0 0 0 0 -.3"/>
<body name="{side}_shank" pos="0 0 -.3"><joint name="{side}_knee" axis="0 1 0" range="-1 2"/>
<geom type="capsule" size=".03" fromto="0 0 0 0 0 -.3"/><geom type="box" size=".1 .05 .02" pos=".02 0 -.31"/>
</body></body>"""
BIPED = f"""<mujoco><worldbody><body name="pelvis"><geom type="box" size=".08 .12 .1" mass="3" pos="0 0 .1"/>
{LEG.format(side="left", y=0.1)}{LEG.format(side="right", y=-0.1)}</body></worldbody>
<actuator><motor joint="right_knee" ctrlrange="-40 40"/><motor joint="left_knee" ctrlrange="-40 40"/>
<motor joint="left_hip" ctrlrange="-40 40"/><motor joint="right_hip" ctrlrange="-40 40"/></actuator></mujoco>"""
MODEL = ("left_hip", "left_knee", "right_hip", "right_knee")
POLICY = ("left_hip", "right_hip", "left_knee", "right_knee")
SDK = ("right_hip", "right_knee", "left_hip", "left_knee")
HIP, KNEE, FLAT = -0.2, 0.4, Arena("flat", (Zone("flat", 6.0),), 4.0)
DOCUMENT = {
    "joint_ids_map": [SDK.index(name) for name in POLICY],
    "step_dt": 0.02,
    "stiffness": [60.0, 80.0, 50.0, 70.0],
    "damping": [3.0, 4.0, 1.0, 2.0],
    "default_joint_pos": [HIP, HIP, KNEE, KNEE],
    "commands": {"base_velocity": {"ranges": {"lin_vel_x": [-0.5, 0.25], "lin_vel_y": None, "ang_vel_z": [0, 0]}}},
    "actions": {"JointPositionAction": {"clip": None, "scale": [0.1, 0.2, 0.3, 0.4], "offset": [0.0, 0.1, 0.2, 0.3]}},
    "observations": {
        "base_ang_vel": {"scale": [0.2, 0.2, 0.2], "clip": None, "history_length": 1},
        "velocity_commands": {"scale": [1, 1, 1], "clip": None, "history_length": 3},
        "joint_pos_rel": {"scale": [1, 2, 3, 4], "clip": [-0.01, 0.02], "history_length": 3},
        "last_action": {"scale": [1, 1, 1, 1], "clip": None, "history_length": 2},
    },
}
WIDTH = 3 + 9 + 12 + 8


def _text(document):
    return yaml.safe_dump(document, sort_keys=False)


def _changed(*keys, value):
    """DOCUMENT with another value at a path of keys; None for the value leaves the key out."""
    document = yaml.safe_load(_text(DOCUMENT))
    inner = document
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    if value is None:
        del inner[keys[-1]]
    return document


@pytest.fixture(scope="module")
def cfg(tmp_path_factory):
    model = tmp_path_factory.mktemp("biped") / "biped.xml"
    model.write_text(BIPED)
    words = (f"robots.biped.model={model}", f"robots.biped.sdk_joints=[{','.join(SDK)}]", "episodes=2", "seconds=1.0")
    return compose_settings((*words, "robots.biped.fall_angle=1.0", "robots.biped.fall_height=0.05"))


@pytest.fixture(scope="module")
def biped(cfg):
    return find_robot("biped", cfg)


def _read(folder, biped, cfg, document):
    text = _text(document) if isinstance(document, dict) else document
    (folder / "deploy.yaml").write_text(text)
    return read_deployment("a", folder / "policy.pt", biped, cfg)


@pytest.fixture(scope="module")
def own(biped, cfg, tmp_path_factory):
    return _read(tmp_path_factory.mktemp("own"), biped, cfg, DOCUMENT)


def test_numbers_are_in_the_robots_order(biped, own) -> None:
    assert biped.dof_names == MODEL and not biped.stance
    assert own.gains == ((50.0, 70.0, 60.0, 80.0), (1.0, 2.0, 3.0, 4.0))
    assert own.stance == (HIP, KNEE, HIP, KNEE)
    assert own.action_scale == (0.1, 0.3, 0.2, 0.4) and own.action_offset == (0.0, 0.2, 0.1, 0.3)
    assert [MODEL[k] for k in own.layout.joints] == list(POLICY)
    assert own.layout.width == WIDTH and own.commands[0] == (-0.5, 0.25)
    # straight legs, 0.6 m and the foot's box below; both hips bent backwards by 90 degrees, the thighs' radius
    assert base_height_of(biped, (0.0,) * 4) == pytest.approx(0.63)
    assert base_height_of(biped, (torch.pi / 2, 0.0) * 2) == pytest.approx(0.12, abs=1e-3)


def test_properties_of_onnx_say_the_same_as_deploy_yaml(biped, cfg, own, tmp_path) -> None:
    onnx = pytest.importorskip("onnx")
    from onnx import helper

    terms = {
        "base_ang_vel": (0.2, 1, 3),
        "command": (1.0, 3, 9),
        "joint_pos": ("1;2;3;4", 3, 12),
        "actions": (1.0, 2, 8),
    }
    values = {
        "joint_names": POLICY, "control_dt": [0.02], "joint_stiffness": [50, 60, 70, 80], "joint_damping": [1, 3, 2, 4],
        "default_joint_pos": [HIP, HIP, KNEE, KNEE], "action_scale": [0.1, 0.2, 0.3, 0.4],
        "action_offset": [0.0, 0.1, 0.2, 0.3], "observation_names": terms,
        "observation_terms_scale": [scale for scale, _, _ in terms.values()],
        "observation_terms_clip": ["-inf;inf", "-inf;inf", "-0.01;0.02", "-inf;inf"],
        "observation_terms_history_length": [steps for _, steps, _ in terms.values()],
        "observation_terms_width": [width for _, _, width in terms.values()],
    }  # fmt: skip
    tensors = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 4]) for name in ("obs", "actions")]
    graph = helper.make_graph([helper.make_node("Identity", ["obs"], ["actions"])], "p", tensors[:1], tensors[1:])
    model = helper.make_model(graph)
    helper.set_model_props(model, {key: ",".join(map(str, row)) for key, row in values.items()})
    onnx.save(model, str(tmp_path / "policy.onnx"))
    read = read_deployment("a", tmp_path / "policy.onnx", biped, cfg)
    assert read == replace(own, commands=read.commands, files=()) and read.commands[0] == (-torch.inf, torch.inf)
    (tmp_path / "deploy.yaml").write_text(_text(DOCUMENT))  # has the commands
    assert replace(read_deployment("a", tmp_path / "policy.onnx", biped, cfg), files=own.files) == own


class _Constant(torch.nn.Module):
    """A policy that keeps what it observes; its actions are constant."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[torch.Tensor] = []

    def forward(self, obs):
        self.seen.append(obs.clone())
        return torch.tensor([1.0, 2.0, 3.0, 4.0]).expand(len(obs), 4) * len(self.seen)


def _policy(own, name="a"):
    return LoadedPolicy(name, f"{name}.pt", "torchscript", _Constant(), own.layout, True, 2, deployment=own)


def test_robots_have_the_policys_drives_stance_commands_and_histories(biped, cfg, own) -> None:
    policy = _policy(own)
    inputs = Inputs(biped, cfg, (policy,), (FLAT,))
    batch = Batch(part(inputs).scene, inputs.specs)
    assert batch.sim.drive_gains["stiffness"].tolist() == list(own.stiffness)
    assert batch.sim.drive_gains["damping"].tolist() == list(own.damping)
    start = cfg.start
    torch.testing.assert_close(batch.sim.root_states[:, 2], torch.full((2,), own.height + start.clearance))
    assert bool(((batch.sim.dof_pos - torch.tensor(own.stance)).abs() <= start.spread_joints + 1e-6).all())
    frames = []
    for step in range(1, 5):
        # actions are 1 to 4 in the policy's order, times the number of the call
        target = torch.tensor([0.0 + 0.1, 0.2 + 0.9, 0.1 + 0.4, 0.3 + 1.6])
        if step == 1:
            torch.testing.assert_close(batch._target, target.expand(2, 4))
        position = (batch.sim.dof_pos - torch.tensor(own.stance))[:, list(own.layout.joints)]
        frames.append(position.clamp(-0.01, 0.02) * torch.tensor([1.0, 2.0, 3.0, 4.0]))
        seen = policy.module.seen[-1]
        assert torch.equal(seen[:, 3:6], torch.tensor([[0.25, 0.0, 0.0]] * 2))  # the fastest that the policy knows
        expected = [frames[max(0, k)] for k in range(step - 3, step)]
        torch.testing.assert_close(seen[:, 12:24], torch.cat(expected, dim=1))
        last = torch.tensor([1.0, 2.0, 3.0, 4.0])
        torch.testing.assert_close(seen[0, 24:], torch.cat([last * max(0, step - 2), last * (step - 1)]))
        batch.advance(1)
    # a robot that goes on alone, or later, takes its history with it
    one = Batch.resumed(batch.scene, batch.specs[1:], select(batch.state(), [1], 2), batch.step_count)
    for each in (one, batch):
        policy.module.seen = policy.module.seen[:4]
        each.advance(1)
    assert torch.equal(one._past[0], batch._past[1]) and bool(one._past[0, 12:24].any())


def test_policies_with_other_drives_are_simulated_apart_and_a_tilted_biped_has_fallen(
    biped, cfg, own, tmp_path
) -> None:
    limp = replace(own, stiffness=(0.0,) * 4, damping=(0.0,) * 4)
    inputs = Inputs(biped, cfg, tuple(_policy(x, name) for name, x in (("a", own), ("b", limp), ("c", own))), (FLAT,))
    alone = part(inputs, folder=tmp_path)
    assert [sorted({spec.policy for spec in wave}) for wave in alone.waves] == [[0, 2], [1]]
    batch = Batch(alone.scene, alone.waves[1])
    assert not batch.sim.drive_gains["stiffness"].any()
    root = batch.sim.root_states.clone()
    root[:, 2] = 2.0
    for row, tilt in enumerate((0.9, 1.1)):  # the robot falls at 1
        root[row, 3:7] = torch.tensor([0.0, math.sin(tilt / 2), 0.0, math.cos(tilt / 2)])
    batch.sim.write(torch.ones(2, dtype=torch.bool), root, batch.sim.dof_pos, batch.sim.dof_vel)
    batch.advance(1)
    assert [(spec.number, values["end"]) for spec, values in batch.ended()] == [(1, "fall")]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("a: [", "line"),
        ("3", "deploy.yaml"),
        (_changed("stiffness", value=None), "the key 'stiffness' is missing"),
        (_changed("stiffness", value=[1.0]), "deploy.yaml: "),
        (_changed("step_dt", value=0.01), "it acts every 0.01 s, and the grid every 0.02 s: set control_hz"),
        (_changed("joint_ids_map", value=[0, 1, 2, 2]), "joint_ids_map must have each of 0 to 3 once"),
        (_changed("default_joint_pos", value=[0.0, "x", 0.0, 0.0]), "could not convert string"),
        (_changed("actions", "JointPositionAction", "scale", value=[0.1]), "scale must be 4 finite numbers, got 1"),
        (_changed("actions", value={"JointVelocityAction": {}}), "its actions are JointVelocityAction"),
        (_changed("observations", "gait_phase", value=DOCUMENT["observations"]["base_ang_vel"]), "gait_phase is not"),
        (
            _changed("observations", "joint_pos_rel", "scale", value=[1, 1]),
            "the observation joint_pos_rel has 6 numbers",
        ),
        (_changed("observations", "joint_pos_rel", "clip", value=[2, 1]), "[2, 1] is not a range"),
    ],
)
def test_bad_numbers_are_one_line(biped, cfg, tmp_path, document, message) -> None:
    with pytest.raises(UserError) as refused:
        _read(tmp_path, biped, cfg, document)
    assert message in str(refused.value) and str(refused.value).startswith("policy a: ")
    assert "\n" not in str(refused.value)


def test_bad_robots_and_policies_without_numbers_are_one_line(biped, cfg, tmp_path) -> None:
    torch.jit.save(torch.jit.trace(torch.nn.Linear(4, 4), torch.zeros(2, 4)), str(tmp_path / "policy.pt"))
    with pytest.raises(UserError, match=r"does not have the gains and observations of biped: give an ONNX file"):
        load_policy_file("a", tmp_path / "policy.pt", {}, None, biped, cfg)
    (tmp_path / "deploy.yaml").write_text(_text(DOCUMENT))
    with pytest.raises(UserError, match=f"takes 4 observations, and the layout own has {WIDTH}"):
        load_policy_file("a", tmp_path / "policy.pt", {}, None, biped, cfg)
    unnamed = compose_settings(("robots.biped.model=x.xml",))
    with pytest.raises(UserError, match=r"set robots.biped.sdk_joints to model"):
        load_policy_file("a", tmp_path / "policy.pt", {}, None, biped, unnamed)
    (tmp_path / "passive.xml").write_text(BIPED.replace('<motor joint="left_hip" ctrlrange="-40 40"/>', ""))
    (tmp_path / "torn.urdf").write_text("<robot")
    for words, message in (
        (["robots.h1.model=no.xml"], "robots.h1.model: no.xml: "),
        (["robots.h1.model=null"], "robot h1: give an MJCF or URDF file: robots.h1.model=FILE"),
        ([f"robots.h1.model={tmp_path}/passive.xml"], "the joint left_hip has no actuator"),
        ([f"robots.h1.model={tmp_path}/torn.urdf"], "torn.urdf: "),
        ([], "unknown robot 'h1'"),
    ):
        with pytest.raises(UserError) as refused:
            find_robot("h1", compose_settings(words))
        assert message in str(refused.value) and "\n" not in str(refused.value)
    with pytest.raises(UserError, match=r"robots.spot: it has this package's model"):
        find_robot("spot", compose_settings(["robots.spot.model=x.xml"]))
