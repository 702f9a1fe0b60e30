"""Parts of the benchmark: its candidates are realistic and distinct, its report has the latest records."""

import ast
import runpy
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

from bench import records, tables
from bench.candidates import make_candidates
from bench.report import report

from envcoder_bench.core.errors import Stopped, exit_on_user_error
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.prepare import prepare

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"


def structure(source: str) -> str:
    """A candidate without its numbers and texts: two files with one structure differ only in constants."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and not isinstance(node.value, str):
            node.value = 0
    return ast.dump(ast.Module(body=tree.body[1:], type_ignores=[]))  # the docstring holds the number


@pytest.mark.slow
def test_1000_candidates_are_distinct():
    candidates = make_candidates(1000)
    bodies = {c.source.split("\n", 1)[1] for c in candidates}  # the first line is the candidate's number
    assert len(bodies) == 1000
    assert len({structure(c.source) for c in candidates}) >= 950  # without their constants
    assert len({c.name for c in candidates}) == 1000
    assert make_candidates(4) == candidates[:4]


def test_structure_ignores_only_constants_and_docstring():
    a, b, c = ('"""1."""\nx = f(1.5) * 2', '"""2."""\nx = f(2.5) * 3', '"""1."""\nx = g(1.5) * 2')
    assert structure(a) == structure(b) != structure(c)


def test_every_candidate_has_its_functions():
    kinds = Counter()
    for k, candidate in enumerate(make_candidates(200)):
        own = {line.split("(")[0][4:] for line in candidate.source.splitlines() if line.startswith("def ")}
        kinds.update(own)
        assert {"compute_reward", "compute_observation", "compute_terminal"} <= own
        assert len(own & {"compute_torque", "compute_dof_target"}) == 1
        assert ({"compute_initial_state", "compute_goal"} <= own) == (k % 4 == 0)
    assert min(kinds.values()) == 50


@pytest.mark.slow
def test_candidates_pass_the_checks():
    torch.set_num_threads(1)
    cfg = compose_config("Anymal", ["num_envs_per_candidate=4", "sim=mujoco_cpu", "device=cpu"])
    groups, failed = prepare(cfg, make_candidates(60)[20:])
    assert not failed and len(groups) == 40
    assert len({group.shaping.obs_dim for group in groups}) > 5
    assert len({group.shaping.components for group in groups}) > 20
    assert {group.shaping.effort for group in groups} == {True, False}


def _scaling(candidates, training, **more):
    about = {"label": "box", "machine": "box, 2 cores", "date": "2027-01-02 03:04", "command": "c", "device": "cpu"}
    row = {"kind": "scaling", "candidates": candidates, "envs": 8, "physics": 1000.0, "memory_gib": 1.5}
    return {**row, "training": training, "startup_s": 3.0, **about, **more}


def test_report_fills_its_blocks_with_the_latest_records(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "before\n<!-- scaling cpu -->\nold\n<!-- end -->\nbetween\n<!-- scaling cuda -->\n<!-- end -->\nafter"
    )
    file = tmp_path / "records.jsonl"
    for row in (_scaling(2, 100.0), _scaling(4, 500.0), _scaling(4, 800.0, date="2027-01-02 03:05")):
        records.append(file, row)
    assert report(file, [page], tmp_path) == [page, tmp_path / "scaling.png"]
    text = page.read_text()
    assert "| 4 x 8 | 800 | 1,000 | 0.80 | 1.5 GiB | 3 s |" in text and "| 2 x 8 | 100 |" in text
    assert "500" not in text and "old" not in text
    assert text.endswith("between\n<!-- scaling cuda -->\n<!-- end -->\nafter")
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")
    report(file, [page], tmp_path)
    assert page.read_text() == text


def test_records_of_other_physics_are_in_tables_and_not_in_pictures(tmp_path):
    page, file = tmp_path / "page.md", tmp_path / "records.jsonl"
    page.write_text("<!-- scaling cpu -->\n<!-- end -->\n")
    records.append(file, _scaling(2, 100.0, date="2026-11-21 03:04"))
    assert report(file, [page], tmp_path) == [page]
    assert "| 2 x 8 | 100 |" in page.read_text()


def test_devices_have_a_picture_of_the_most_candidates(tmp_path):
    file = tmp_path / "records.jsonl"
    for count, candidates, rate in ((1, 8, 100.0), (2, 8, 190.0), (1, 4, 50.0)):
        row = _scaling(
            candidates, rate, kind="devices", count=count, device="cuda", first_iteration_s=9.0, seconds=60.0
        )
        records.append(file, row)
    assert report(file, [], tmp_path) == [tmp_path / "devices.png"]
    assert (tmp_path / "devices.png").read_bytes().startswith(b"\x89PNG")


def test_processes_are_compared_on_the_same_machine_and_size():
    alone = {**_scaling(0, 0.0), "kind": "processes", "processes": 8, "each": [5.0] * 8, "total": 40.0}
    known = [_scaling(250, 800.0), _scaling(1000, 900.0), _scaling(250, 1.0, label="other"), _scaling(250, 2.0, envs=9)]
    row = tables.table("processes", tables.select("processes", [alone], known))[-1]
    assert row == "| 8 x 8 | 5 | 40 | 800 (250 candidates) | 20.0 |"
    assert tables.table("processes", tables.select("processes", [alone]))[-1] == "| 8 x 8 | 5 | 40 |  |  |"


def test_several_devices_are_compared_with_one():
    rows = [
        {**_scaling(8, 0.0), "kind": "devices", "count": n, "training": rate, "first_iteration_s": 9.0, "seconds": 60.0}
        for n, rate in ((1, 100.0), (2, 190.0))
    ]
    assert tables.table("devices", tables.select("devices", rows))[-1] == "| 2 | 8 x 8 | 190 | 1.90 | 9 s | 1.0 min |"
    assert tables.table("devices", tables.select("devices", rows[1:]))[-1] == "| 2 | 8 x 8 | 190 |  | 9 s | 1.0 min |"


def test_speed_of_several_devices_is_that_while_all_of_them_train():
    from bench.devices import _Progress

    watch = _Progress()  # two devices of an iteration and 100 env-steps/s each; the second begins after 10 s
    watch.seen = [(float(t), t + max(0, t - 10), 100 * (t + max(0, t - 10))) for t in range(1, 31)]
    watch.seen += [(40.0, 50, 5000)]  # a last evaluation
    assert watch.rate() == 200.0


def test_ctrl_c_ends_a_script_with_one_line(capsys):
    for stop, told in (
        (KeyboardInterrupt(), "stopped"),
        (Stopped("stopped in iteration 3", None), "stopped in iteration 3"),
    ):
        with pytest.raises(SystemExit) as end, exit_on_user_error("benchmark"):
            raise stop
        assert end.value.code == 130 and capsys.readouterr() == ("", f"benchmark: {told}\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("benchmark.py learning --task Antt", "benchmark: error: unknown task 'Antt' (did you mean Ant?)"),
        ("benchmark.py learning --task Cartpole task.none=3", "benchmark: error: unknown key 'task.none'"),
        ("benchmark.py learning --task isaacgymenvs:Ant", "benchmark: error: ISAACGYMENVS_PATH={folder}/none: "),
        ("pool.py Antt 3 {folder}/pool", "pool: error: unknown task 'Antt' (did you mean Ant?)"),
        ("rounding.py --task Antt", "rounding: error: unknown task 'Antt' (did you mean Ant?)"),
        ("race.py {folder}/none", "race: error: {folder}/none/episodes.csv: there is no such file"),
        ("race_further.py {folder}/none", "race_further: error: {folder}/none/episodes.csv: there is no such file"),
    ],
)
def test_scripts_print_one_line_for_bad_input(words, message, tmp_path, monkeypatch, capsys):
    """In this process: the imports of one of their own take seconds."""
    monkeypatch.setenv("ISAACGYMENVS_PATH", str(tmp_path / "none"))
    script, *rest = words.format(folder=tmp_path).split()
    monkeypatch.setattr(sys, "argv", [str(SCRIPTS / script), *rest])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(sys.argv[0], run_name="__main__")
    written = capsys.readouterr().err
    (line,) = [line for line in written.splitlines() if not line.startswith("Warp ")]
    assert end.value.code == 2 and line.startswith(message.format(folder=tmp_path)), written
    assert not list(tmp_path.iterdir())
