"""run.json: the provenance of a run."""

import json
import subprocess

import pytest

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.yaml_files import to_yaml
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.folder import provenance
from envcoder_bench.run.folder.checkpoint import FORMAT
from envcoder_bench.run.folder.provenance import Provenance, read_provenance
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.sources.registry import find_spec


@pytest.mark.slow
def test_record_round_trips_through_its_file(tmp_path):
    record = Provenance.new("seeds: 1\nlimit: .inf\n", "cpu", {"fitness.py": "12ab"}, find_spec("Cartpole"))
    record.write(tmp_path / "run.json")
    assert read_provenance(tmp_path / "run.json") == record
    strict = json.loads((tmp_path / "run.json").read_text(), parse_constant=pytest.fail)  # no Infinity
    assert strict["format"] == FORMAT
    versions = strict["software"][0]
    for name in ("envcoder_bench", "python", "torch", "mujoco", "mujoco_warp", "warp", "rl_games", "device"):
        assert versions[name], name
    with pytest.raises(ValueError, match=r"run2\.json cannot be read"):
        read_provenance(tmp_path / "run2.json")


@pytest.mark.slow
def test_commit_of_a_checkout_marks_uncommitted_changes(tmp_path):
    def git(*words):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        done = subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    assert provenance._commit(tmp_path) is None
    git("init")
    (tmp_path / "file").write_text("1")
    git("add", ".")
    git("commit", "-m", "one")
    git("tag", "v1")
    commit = git("rev-parse", "HEAD")
    assert provenance._commit(tmp_path) == commit
    (tmp_path / "file").write_text("2")
    assert provenance._commit(tmp_path) == f"{commit}-dirty"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": "x"}', '{"format": 1, "begun": 1}'])
def test_damaged_record_is_refused(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(ValueError, match=r"run\.json is damaged"):
        read_provenance(tmp_path / "run.json")


def test_a_key_that_another_version_recorded_has_a_remedy_also_after_its_line_is_removed(tmp_path):
    folder = RunFolder(tmp_path)
    folder.source("a").parent.mkdir(parents=True)
    folder.source("a").write_text("")
    config = compose_config("Cartpole", ["device=cpu"]).plain()
    config = {**config, "retries": 4, "candidates": [{"name": "a", "file": "a.py"}]}
    text = to_yaml(config)
    Provenance(None, [{"envcoder_bench": "0.9.0"}], text).write(folder.run)
    folder.summary.touch()  # the run is complete, so that its config.yaml is not written again
    for present in (text, text.replace("retries: 4\n", "")):
        folder.config.write_text(present)
        with pytest.raises(UserError) as error:
            RunFolder(tmp_path).read()
        assert str(error.value).startswith(f"{folder.config}: unknown key 'retries'")
        assert str(error.value).endswith("resume with envcoder-bench 0.9.0, or begin a new run")
