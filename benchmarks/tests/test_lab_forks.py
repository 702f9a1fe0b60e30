"""The table of repositories for Isaac Lab is that of the record, and its counts hold what the page says."""

import json
from pathlib import Path

import lab_forks

PAGE = Path(lab_forks.__file__).parent / "isaaclab.md"


def test_the_page_shows_the_record():
    record = json.loads(lab_forks.RECORD.read_text())
    assert {name: values["commit"] for name, values in record.items()} == lab_forks.REPOSITORIES
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "/" in line]
    assert rows == [lab_forks.row(name, values) for name, values in sorted(record.items())]
    configs, loaded = (sum(values[key] for values in record.values()) for key in ("configs", "loaded"))
    assert f"{loaded} of {configs} configs of {len(record)} repositories load" in PAGE.read_text()


def test_configs_are_counted_by_their_reasons(tmp_path, monkeypatch):
    (tmp_path / "tasks.py").write_text(
        'import gymnasium as gym\ngym.register(id="A")\nfor _ in "ab":\n    gym.register(id="B")\n'
    )
    assert lab_forks._registrations(tmp_path / "tasks.py") == 2
    missing, failures = lab_forks.Counter(), lab_forks.Counter()
    lab_forks._note(ModuleNotFoundError("no", name="cv2"), 2, missing, failures, tmp_path)
    lab_forks._note(ValueError(f"{tmp_path}/robot.urdf\nis bad"), 1, missing, failures, tmp_path)
    assert missing == {"cv2": 2} and failures == {"ValueError: ./robot.urdf is bad": 1}
    values = {"commit": "abc", "configs": 4, "loaded": 1, "missing": dict(missing), "failures": dict(failures)}
    assert lab_forks.row("a/b", values) == "| a/b abc | 1 of 4 | cv2 is missing (2); ./robot.urdf is bad (1) |"
