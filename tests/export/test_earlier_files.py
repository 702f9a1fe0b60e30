"""An export names the files beside it that are of the same policy."""

import json

import pytest

from envcoder_bench.export.write import _earlier_files


@pytest.mark.parametrize(
    "digest, exists, expected",
    [("of this policy", True, {"onnx": "policy.onnx"}), ("of this policy", False, {}), ("of another", True, {})],
)
def test_files_of_another_policy_and_missing_ones_are_not_named(tmp_path, digest, exists, expected):
    about = tmp_path / "policy.json"
    about.write_text(json.dumps({"policy_sha256": digest, "files": {"onnx": "policy.onnx", "model": "model.xml"}}))
    if exists:
        (tmp_path / "policy.onnx").touch()
    assert _earlier_files(about, "of this policy") == expected


@pytest.mark.parametrize("text", ["", "[1]", '{"policy_sha256": "x"}', '{"policy_sha256": "x", "files": {"onnx": 3}}'])
def test_a_damaged_description_names_none(tmp_path, text):
    (tmp_path / "policy.json").write_text(text)
    assert _earlier_files(tmp_path / "policy.json", "x") == {}
