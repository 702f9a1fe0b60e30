"""Measurements of terrain tasks: levels of a training, and which tiles a policy crosses."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
sys.path.insert(0, str(SCRIPTS))

import benchmark as script  # noqa: E402
from bench import learning, terrain, terrain_report  # noqa: E402
from bench.report import report  # noqa: E402
from bench.tables import select, table  # noqa: E402

from envcoder_bench.core.groups import GroupLayout  # noqa: E402

SMALL = [
    *("task.env.terrain.numLevels=2", "task.env.terrain.numTerrains=5", "task.env.terrain.borderSize=1"),
    *("task.env.terrain.horizontalScale=0.25", "task.env.terrain.terrainProportions=[0.2,0.2,0.2,0.2,0.2]"),
    *("task.sim.dt=0.01", "task.env.control.decimation=2", "train.params.network.mlp.units=[16]"),
]
ON_CPU = ["--sim", "mujoco_cpu", "--device", "cpu"]


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def _task(types, columns, levels):
    state = {"terrain_types": torch.tensor(columns).float(), "terrain_levels": torch.tensor(levels).float()}
    return Namespace(grid=Namespace(types=types, origins=np.zeros((2, len(types), 3))), state=state, curriculum=True)


def test_shares_are_counted_for_each_type_and_level():
    task = _task((0, 2, 2), [0, 0, 1, 2, 2], [0, 1, 1, 1, 1])
    flags = {"crossed": torch.tensor([True, False, True, False, True])}
    assert terrain.by_tile(task, flags) == {
        "smooth slope": {"robots": [1, 1], "crossed": [1.0, 0.0]},
        "stairs up": {"robots": [0, 3], "crossed": [None, pytest.approx(2 / 3)]},
    }


def test_levels_are_means_per_group_and_type():
    task = _task((0, 2), [0, 1, 1, 0, 0, 1], [1, 0, 3, 2, 4, 1])
    assert terrain.levels_of(task, GroupLayout(2, 3)) == {"smooth slope": [1.0, 3.0], "stairs up": [1.5, 1.0]}
    task.curriculum = False
    assert terrain.levels_of(task, GroupLayout(2, 3)) is None
    assert terrain.levels_of(Namespace(), GroupLayout(1, 3)) is None
    legged = Namespace(state={"terrain_levels": torch.tensor([1, 2, 4, 5])})
    assert terrain.levels_of(legged, GroupLayout(2, 2)) == {"all": [1.5, 4.5]}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    words = ["--task", "SpotTerrain", "--seeds", "2", "--envs", "10", "--episodes", "2", "--points", "1"]
    words += ["--candidates", "human", "--seconds", "1e-6", "--run", str(folder), *ON_CPU, *SMALL]
    return list(learning.learning(script.parse(["learning", *words]))), folder / "SpotTerrain_human.pth"


@pytest.mark.slow
def test_training_on_terrain_records_the_levels_of_each_seed(trained):
    (point,), _ = trained
    assert set(point["levels"]) == set(terrain.TYPES[:5])
    assert all(len(own) == 2 and all(0 <= x <= 1 for x in own) for own in point["levels"].values())


def crossings(policy, *words):
    common = ["--task", "SpotTerrain", "--policy", str(policy), "--episodes", "20", *ON_CPU]
    return list(terrain.crossings(script.parse(["crossings", *common, *words, *SMALL])))


@pytest.mark.slow
def test_crossings_count_robots_that_left_their_tile_or_fell(trained, monkeypatch):
    """Robot 0 starts far from the centre of its tile, and robot 1 terminates."""
    seen = {}

    class Env(terrain.GroupedVecTask):
        def begin_all(self, step):
            obs = super().begin_all(step)
            self.state["env_origins"][0, 0] += 100.0
            first = torch.arange(self.num_envs) == 1
            self.dispatch.terminal = lambda count, active: first
            seen["task"] = self.task
            return obs

    monkeypatch.setattr(terrain, "GroupedVecTask", Env)
    (made,) = crossings(trained[1], "--seconds", "0.06")
    tiles = made["tiles"]
    assert sum(sum(own["robots"]) for own in tiles.values()) == 20 and made["sim"] == "mujoco_cpu"
    for key, robot in (("crossed", 0), ("fell", 1)):
        column, level = (int(seen["task"].state[name][robot]) for name in ("terrain_types", "terrain_levels"))
        kind = terrain.TYPES[seen["task"].grid.types[column]]
        counts = {
            (name, k): round(share * own["robots"][k])
            for name, own in tiles.items()
            for k, share in enumerate(own[key])
            if share
        }
        assert counts == {(kind, level): 1}
    commands = seen["task"].state["commands"]
    assert torch.equal(commands[:, 0], torch.full((20,), 0.8)) and commands[:, 1].abs().max() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "task, words, message",
    [
        ("SpotTerrain", ["--policy", "none.pth"], "--policy none.pth: there is no such file"),
        ("Cartpole", [], "--task Cartpole: it has no grid of terrains"),
        ("SpotTerrain", ["task.env.terrain.terrainType=plane"], "task.env.terrain.terrainType is plane"),
        ("SpotTerrain", ["--candidate", "none.py"], "--candidates none.py: there is no such file"),
    ],
)
def test_bad_input_ends_with_a_message(trained, task, words, message):
    common = ["--policy", str(trained[1]), "--task", task, "--episodes", "4", *ON_CPU]
    with pytest.raises(SystemExit, match=message):
        list(terrain.crossings(script.parse(["crossings", *common, *words])))


@pytest.mark.slow
def test_report_has_the_latest_climbs_and_crossings(trained, tmp_path):
    (point,), _ = trained
    point = {**point, "device": "cuda", "label": "H200", "machine": "H200, 16 CPU cores", "run": "2026-01-02"}
    later = {**point, "point": 2, "env_steps": 2 * point["env_steps"]}
    older = {**point, "run": "2026-01-01", "point": 9}
    tile = {"robots": [4, 4], "crossed": [1.0, 0.25], "fell": [0.0, 0.5]}
    about = {key: point[key] for key in ("label", "machine", "date", "command", "device", "task", "candidate")}
    crossed = {"kind": "crossings", "sim": "mujoco_cpu", "tiles": {"stairs up": tile}, **about}
    records = tmp_path / "records.jsonl"
    records.write_text("".join(f"{json.dumps(r)}\n" for r in (older, later, point, crossed)))
    assert [p["point"] for p in terrain_report.climbs([older, later, point])["SpotTerrain"]] == [1, 2]
    assert [r["type"] for r in terrain_report.crossings_beside([crossed], point)] == ["stairs up"]
    assert terrain_report.crossings_beside([{**crossed, "device": "cpu"}], point) == []
    rows = table("crossings", select("crossings", [crossed]))
    assert rows[2] == "| SpotTerrain, human | stairs up | 8 | 100 | 25 |  |  |  |  |  |  |  |  | 25 |"
    page = tmp_path / "page.md"
    page.write_text("<!-- climbs cuda -->\n<!-- end -->\n<!-- crossings cuda -->\n<!-- end -->\n")
    drawn = report(records, [page], tmp_path / "images")
    assert tmp_path / "images" / "terrain_SpotTerrain.png" in drawn
    text = page.read_text()
    assert "(images/terrain_SpotTerrain.png)" in text and rows[2] in text
