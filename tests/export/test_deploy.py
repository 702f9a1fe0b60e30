"""What programs of robots read is of this policy: all of its observation, and no term that they take for another."""

import math

import pytest
import yaml

from envcoder_bench.export.deploy import deploy_yaml
from envcoder_bench.export.describe import observes_terms
from envcoder_bench.export.write import _write_deploy

TOLD = {
    "joint_names": ["knee"],
    **{name: [1.0] for name in ("joint_stiffness", "joint_damping", "default_joint_pos")},
    **{name: [1.0] for name in ("action_scale", "action_offset")},
    "command_ranges": {"lin_vel_x": [-1.0, 1.0]},
    "observation_names": ["command", "joint_pos"],
    "observation_terms_scale": [1.0, 1.0],
    "observation_terms_clip": [[-math.inf, math.inf], [-math.inf, 0.5]],
    "observation_terms_history_length": [0, 0],
    "observation_terms_width": [3, 1],
}


@pytest.mark.parametrize("width, whole", [(4, True), (3, False), (5, False), (0, False)])
def test_a_part_of_the_terms_is_not_all_of_them(width, whole):
    columns = [{"reads": [f"obs_buf[{k}]"], "copied": True} for k in range(width)]
    assert observes_terms({"input": {"columns": columns or None}}, TOLD["observation_terms_width"]) == whole


def test_clips_with_one_finite_end_are_kept():
    observations = yaml.safe_load(deploy_yaml(TOLD, 0.02) or "")["observations"]
    assert observations["velocity_commands"]["clip"] is None
    assert observations["joint_pos_rel"]["clip"] == [-math.inf, 0.5]


def test_a_command_that_is_not_a_velocity_is_not_taken_for_one():
    assert deploy_yaml({**TOLD, "command_ranges": {}}, 0.02) is None
    alone = {name: x[1:] for name, x in TOLD.items() if name.startswith("observation_")}
    assert deploy_yaml({**TOLD, **alone, "command_ranges": {}}, 0.02) is not None


def test_the_file_of_an_earlier_export_is_removed_and_that_of_a_user_is_kept(tmp_path):
    file = _write_deploy(deploy_yaml(TOLD, 0.02), tmp_path)
    assert file is not None and file.is_file()
    assert _write_deploy(None, tmp_path) is None and not file.exists()
    file.write_text("step_dt: 0.02\n")
    assert _write_deploy(None, tmp_path) is None and file.is_file()
