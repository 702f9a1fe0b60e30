"""The page's tables of speeds beside Isaac Lab 3.0 are those of the record."""

import json
from pathlib import Path

import lab_newton

PAGE = (Path(lab_newton.__file__).parent / "isaaclab.md").read_text().splitlines()


def record():
    return json.loads(lab_newton.RECORD.read_text())


def test_the_page_shows_the_speeds_of_the_record():
    speeds = [x for key in ("speeds", "later_speeds") for x in record()[key]["rows"]]
    theirs, ours = ([x for x in speeds if x["3.0"] == real] for real in (True, False))
    rows = [lab_newton.row(*both) for both in zip(theirs, ours)]
    robots = tuple(f"| {name}, " for name in lab_newton.JOINTS)
    assert [line for line in PAGE if line.startswith(robots)] == rows


def test_the_page_shows_the_tree_before():
    later = record()["later_speeds"]
    real = {(x["robot"], x["num_envs"]): x["per_core_s"] for x in later["rows"] if x["3.0"]}
    gains = {(x["robot"], x["num_envs"]): x["speed_up"] for x in later["before"]["side_by_side"]}
    rows = []
    for x in later["before"]["rows"]:
        case, speed = (x["robot"], x["num_envs"]), x["per_core_s"]
        cells = [f"{speed:,}", f"{speed / real[case]:.1f}", str(gains.get(case, "not measured"))]
        rows.append(f"| before: {case[0]}, {case[1]} | {' | '.join(cells)} |")
    assert [line for line in PAGE if line.startswith("| before: ")] == rows


def test_another_record_keeps_the_speeds(tmp_path, monkeypatch):
    before, file = record(), tmp_path / "record.json"
    file.write_text(json.dumps({**before, "robots": "old"}))
    monkeypatch.setattr(lab_newton, "RECORD", file)
    monkeypatch.setattr(lab_newton, "JOINTS", {})
    monkeypatch.setattr("importlib.metadata.version", lambda name: "1.0")
    lab_newton.record(tmp_path)
    written = json.loads(file.read_text())
    assert written["robots"] == {} and set(written["versions"].values()) == {"1.0"}
    assert {**written, "robots": 0, "versions": 0} == {**before, "robots": 0, "versions": 0}
