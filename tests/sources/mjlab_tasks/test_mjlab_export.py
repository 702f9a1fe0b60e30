"""With mjlab itself: what an exported policy tells programs of robots."""

import onnx
import pytest
import torch
from driven import G1, Driven
from torch import nn

from envcoder_bench.export.deploy import deploy_yaml
from envcoder_bench.export.describe import metadata
from envcoder_bench.export.module import ExportedPolicy
from envcoder_bench.export.onnx_file import onnx_bytes

pytest.importorskip("mjlab")
pytestmark = pytest.mark.slow  # constructing a scene takes a second


@pytest.fixture(scope="module")
def task():
    return Driven(G1, 2, begin=False).task


@pytest.fixture(scope="module")
def exported(task, tmp_path_factory):
    """Files of a policy without training."""
    folder, told = tmp_path_factory.mktemp("exported"), task.deployment(0)
    about = {"outputs": {"command": {}}, "rates": {"control_step_s": task.dt}}
    policy = ExportedPolicy(nn.Sequential(nn.Linear(99, 29)), 100.0, 100.0)
    (folder / "policy.onnx").write_bytes(onnx_bytes(policy, 99, "", metadata(about, told)))
    (folder / "deploy.yaml").write_text(deploy_yaml(told, task.dt))
    return folder


def test_the_properties_are_those_of_mjlab_s_exporter(task, exported):
    from mjlab.rl.exporter_utils import get_base_metadata, list_to_csv_str

    env = task.blocks[0].env
    env.observation_manager = task.blocks[0].observations.managers[0][0]
    theirs = get_base_metadata(env, "")
    written = {x.key: x.value for x in onnx.load(exported / "policy.onnx").metadata_props}
    for name in theirs.keys() - {"run_path"}:
        mine, other = written[name].split(","), list_to_csv_str(theirs[name], decimals=6).split(",")
        if name.endswith("names") or name.endswith(("clip", "dim")):
            assert [x.replace(".000000", "") for x in other] == mine, name
        else:
            assert [float(x) for x in mine] == pytest.approx([float(x) for x in other], rel=1e-6, abs=1e-6), name
    assert written["control_dt"] == "0.02" and written["action_delay"] == "0" and written["history_length"] == "1"


def test_gaitkeeper_reads_the_same_robot_from_both_files(task, exported, capsys):
    """Its reader of Unitree's file takes the motors of the G1 to be in the SDK's order."""
    pytest.importorskip("gaitkeeper")
    from gaitkeeper.cli import main
    from gaitkeeper.readers.mjlab_export import read_mjlab_export
    from gaitkeeper.readers.unitree_deploy import read_unitree_deploy

    onnx_file, deploy = exported / "policy.onnx", exported / "deploy.yaml"
    trained, findings = read_mjlab_export(onnx_file, deploy)
    assert {finding.kind for finding in findings} <= {"naming", "rounding"}, findings
    run, findings = read_unitree_deploy(deploy, onnx_file)
    assert not findings  # the policy reads as many numbers as the runtime builds
    for key in ("policy_io.joints.names", "timing.policy_dt"):
        assert run.get(key) == trained.get(key), key
    joints = list(run.get("policy_io.joints.names"))
    assert joints == list(task.world.scene["robot"].joint_names)
    assert main(["deviation", "--deploy", str(deploy), "--onnx", str(onnx_file)]) == 0
    told = capsys.readouterr().out
    assert told.count("no joint differs") == 5, told  # scale, offset, default, kp, kd


def test_other_observations_and_actions_are_not_for_that_runtime(task):
    told = task.deployment(0)
    assert deploy_yaml({**told, "observation_names": [*told["observation_names"][:-1], "height_scan"]}, 0.02) is None
    assert deploy_yaml({}, 0.02) is None
    clipped = {**told, "observation_terms_clip": [[-1.0, 1.0]] * len(told["observation_names"])}
    assert "clip: [-1.0, 1.0]" in deploy_yaml(clipped, 0.02)
    assert torch.isfinite(torch.tensor(told["joint_stiffness"])).all() and min(told["joint_stiffness"]) > 0.0
