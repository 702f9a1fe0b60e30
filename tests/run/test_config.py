import shutil
from unittest.mock import Mock

import pytest

from envcoder_bench.core.errors import UserError
from envcoder_bench.run import config
from envcoder_bench.run.config import compose_config


def test_overrides_reach_task_and_train():
    cfg = compose_config("Cartpole", ["train.params.config.gamma=0.5", "seeds=3", "task.env.resetDist=2.5"])
    assert (cfg.train.params.config.gamma, cfg.seeds, cfg.task.env.resetDist) == (0.5, 3, 2.5)
    assert cfg.task.name == "Cartpole"


def test_unknown_key_is_reported_with_near_matches():
    with pytest.raises(
        UserError, match=r"unknown key 'train.params.config.gama' \(did you mean train.params.config.gamma"
    ):
        compose_config("Cartpole", ["train.params.config.gama=0.5"])


def test_key_without_its_path_is_reported_with_the_full_key():
    with pytest.raises(UserError, match=r"'learning_rate' \(did you mean train.params.config.learning_rate"):
        compose_config("Cartpole", ["learning_rate=1e-3"])


@pytest.mark.parametrize("override, remedy", [("task=Ant", "--task"), ("+new=1", "key=value"), ("~seed", "key=value")])
def test_invalid_overrides_are_refused_with_a_remedy(override, remedy):
    with pytest.raises(UserError, match=remedy):
        compose_config("Cartpole", [override])


def test_malformed_override_is_refused():
    with pytest.raises(UserError, match="cannot read the override"):
        compose_config("Cartpole", ["seeds=[1,"])


def test_composed_config_is_cached_until_a_file_changes(tmp_path, monkeypatch):
    folder = tmp_path / "cfg"
    shutil.copytree(config.project_folder("cfg"), folder)
    monkeypatch.setattr(config, "project_folder", lambda name: folder)
    monkeypatch.setattr(config, "train_defaults", counted := Mock(side_effect=config.train_defaults))
    compose_config("Cartpole", ["seeds=3"])
    assert compose_config("Cartpole", ["seeds=3"]).task.env.resetDist == 3.0
    assert counted.call_count == 1
    assert compose_config("Cartpole", ["seeds=4"]).seeds == 4
    file = folder / "task" / "Cartpole.yaml"
    file.write_text(file.read_text().replace("resetDist: 3.0", "resetDist: 2.0"))
    assert compose_config("Cartpole", ["seeds=3"]).task.env.resetDist == 2.0
    assert counted.call_count == 2
