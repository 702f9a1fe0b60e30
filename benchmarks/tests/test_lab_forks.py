"""The tables of repositories for Isaac Lab are those of the records, and their counts hold what the page says."""

import json
from pathlib import Path

import lab_forks
import lab_policies
import lab_ranking
import lab_training

PAGE = (Path(lab_forks.__file__).parent / "isaaclab.md").read_text()
LOAD, REST = PAGE.split("## Training")
TRAIN, REST = REST.split("## Published policies")
WALK = REST.split("\n## ")[0]


def rows(text):
    return [line for line in text.splitlines() if line.startswith("| ") and "/" in line]


def test_the_page_shows_the_record():
    record = json.loads(lab_forks.RECORD.read_text())
    assert {name: values["commit"] for name, values in record.items()} == lab_forks.REPOSITORIES
    assert rows(LOAD) == [lab_forks.row(name, values) for name, values in sorted(record.items())]
    configs, loaded = (sum(values[key] for values in record.values()) for key in ("configs", "loaded"))
    assert f"{loaded} of {configs} configs of {len(record)} repositories load" in LOAD


def test_the_page_shows_what_trained():
    record = json.loads(lab_training.RECORD.read_text())
    assert rows(TRAIN) == [lab_training.row(name, values) for name, values in sorted(record.items())]
    for name, values in record.items():
        training = lab_training.TRAININGS[name]
        assert (values["commit"], values["task"]) == (training.commit, training.task)
        assert lab_forks.REPOSITORIES[name] == training.commit
    trained = sum(values.get("iterations") == lab_training.ITERATIONS for values in record.values())
    ranked = sum(values.get("candidates") == ["ok", "ok"] for values in record.values())
    terms = [values["unequal"] for values in record.values() if "unequal" in values]
    assert f"{trained} of {len(record)} train with their own script, {ranked} as a ranking" in TRAIN
    assert f"{sum(map(len, terms))} reward terms of {len(terms)} repositories" in TRAIN


def test_the_page_shows_how_policies_walk():
    record = json.loads(lab_policies.RECORD.read_text())
    assert rows(WALK) == [lab_policies.row(name, values) for name, values in sorted(record.items())]
    asked = {
        name: {values["asked"] for key, values in record.items() if key.startswith(name)} for name in lab_policies.PLAYS
    }
    assert asked == {name: set(speeds) for name, (_, speeds) in lab_policies.PLAYS.items()}


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


def test_the_page_shows_the_ranking_without_each_term():
    record = json.loads(lab_ranking.RECORD.read_text())
    text = PAGE.split("### Without each reward term")[1]
    shown = [line for line in text.splitlines() if line.startswith("| ")][1:]  # below the names of the columns
    assert shown == [lab_ranking.row(ranked) for ranked in lab_ranking.ranked(record)]
    assert all(len(seeds) == 3 for seeds in record["candidates"].values())
