import shutil
from unittest.mock import Mock

import pytest

from envcoder_bench.core.errors import UserError
from envcoder_bench.run import config
from envcoder_bench.run.config import compose_config


@pytest.mark.parametrize("override, remedy", [("task=Ant", "--task"), ("+new=1", "key=value"), ("~seed", "key=value")])
def test_invalid_overrides_are_refused_with_a_remedy(override, remedy):
    with pytest.raises(UserError, match=remedy):
        compose_config("Cartpole", [override])


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
