"""The command eval-policies: bad input is one message and exit code 2; the whole protocol in short episodes."""

import csv
import itertools
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from signal import SIGTERM

import forked
import psutil
import pytest
import torch
from helpers import PATIENCE, refused

from envcoder_bench.cli import eval_shapers
from envcoder_bench.cli.eval_policies import EPILOG, build_parser, main
from envcoder_bench.core.errors import UserError
from envcoder_bench.core.files import locked
from envcoder_bench.grid import inputs
from envcoder_bench.grid.inputs import check_inputs
from envcoder_bench.grid.run import GridProgress, begin_grid, read_episodes, run_grid, worker
from envcoder_bench.grid.settings import compose_settings

ROOT = Path(__file__).parents[1]
GRID = "--robot spot --policies a={folder}/a.pt b={folder}/b.pt"


@pytest.fixture(autouse=True, scope="module")
def untried():
    """The files of these tests are not tried in a process each time: tests/grid/test_trial.py has that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inputs, "refusals", lambda files, widths: {})
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two policies and some YAML files."""
    path = tmp_path_factory.mktemp("policies")
    for seed, (name, width) in enumerate((("a", 235), ("b", 48))):
        torch.manual_seed(seed)
        net = torch.nn.Sequential(torch.nn.Linear(width, 16), torch.nn.Tanh(), torch.nn.Linear(16, 12))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.jit.save(torch.jit.trace(net, torch.zeros(2, width)), str(path / f"{name}.pt"))
    (path / "bad.yaml").write_text("zones: [{type: flat, frictn: 1}]\n")
    (path / "torn.yaml").write_text("zones: [{type\n")
    (path / "mine.yaml").write_text(
        "width: 8\nzones:\n- {type: flat, size: 2, friction: 0.6}\n- {type: stairs, difficulty: 0.1}\n"
    )
    (path / "text.pt").write_text("no policy")
    return path


SPOT = "--robot spot --policies"
REFUSED = [  # words, and what the message has
    ("", "no robot: give --robot; see --help"),
    ("--robot spot", "no policies: give --policies"),
    (f"{SPOT} a=x.pt", "no terrains: give --terrains"),
    ("--robot spt --policies a={folder}/a.pt --terrains stairs", "unknown robot 'spt' (did you mean spot?)"),
    (f"{GRID} --terrains stars", "unknown terrain 'stars' (did you mean stairs?); there are friction"),
    (f"{GRID} --terrains nowhere.yaml", "--terrains nowhere.yaml: the file does not exist"),
    (f"{GRID} --terrains {{folder}}/bad.yaml", "bad.yaml: zones[0]: unknown key 'frictn' (did you mean friction?)"),
    (f"{GRID} --terrains {{folder}}/torn.yaml", "torn.yaml: it is not YAML"),
    (f"{GRID} --terrains stairs stairs", "two terrains are named 'stairs'"),
    (f"{SPOT} a={{folder}}/text.pt --terrains stairs", "text.pt cannot be read: it must be TorchScript"),
    (f"{SPOT} {{folder}}/a.pt --terrains stairs", "--policies takes NAME=FILE, or the folder of a run, got"),
    (f"{SPOT} a={{folder}}/a.pt a={{folder}}/b.pt --terrains stairs", "--policies: 'a' is given twice"),
    (f"{GRID} --terrain stairs", "unrecognized arguments: --terrain"),
    (f"{GRID} --terrains friction arenas.friction.zones=[[0.9]]", "arenas.friction.zones must be a list of pairs"),
    (f"{GRID} --terrains friction arenas.friction.zones=[[-1,-1]]", "arenas.friction: zones[0].friction must be"),
    (f"{GRID} --terrains grass arenas.grass=[-10]", "arenas.grass: zones[0].drag must be at least 0"),
    (f"{GRID} --terrains boulder arenas.boulder.zones=[[0.3,0.1,5]]", "arenas.boulder: zones[0].difficulty must"),
    *((f"{GRID} --terrains stairs {words}", message) for words, message in (
        ("--seconds 0", "seconds must be a number above 0, got 0.0"),
        ("--episodes 0", "episodes must be a whole number of at least 1, got 0"),
        ("physics_hz=510", "physics_hz must be a multiple of control_hz = 50, got 510"),
        ("command.vx=1", "unknown key 'command' (did you mean commands or"),
        ("commands.vx=fast", "commands.vx must be a finite number, got fast"),
        ("--layouts a=ruff", "--layouts a=ruff: no such layout; there are flat, rough,"),
        ("--device cuda:97", "cuda:97"),
        ("arenas.stairs.zones=[-0.1]", "arenas.stairs: zones[0].difficulty must be greater"),
        ("start.x=.inf", "start.x must be a finite number"),
        ("compact_below=1", "compact_below must be a number of at least 0 and below 1, got 1"),
        ("seconds=0.001", "seconds must be at least a control step of 0.02 s, got 0.001"),
        ("scan.order=yz", "scan.order must be xy or yx, got yz"),
        ("seed=-1", "seed must be a whole number of at least 0, got -1"),
        ("robots.spot.stiffness=-5", "robots.spot.stiffness must be a number of at least 0, or null, got -5"),
        ("--devices many", "--devices must be all, GPU numbers such as 0,1, or cpu:N, got many"),
        ("--output_dir {folder}", "is not empty; give a new folder"),
        ("--video -1", "--video: it must be a whole number, 0 or more, got -1"),
    )),
    ("--resume {folder}", "the folder does not contain a grid (no config.yaml)"),
    ("--resume {folder} --seconds 3", "--resume takes no other flag but --device, --devices, --sim and --video"),
]  # fmt: skip


@pytest.mark.parametrize("words, message", REFUSED)
def test_bad_input_prints_one_message_and_writes_nothing(folder, tmp_path, monkeypatch, capsys, words, message) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(path.name for path in folder.iterdir())
    told = refused(main, words.format(folder=folder).split(), capsys)
    assert told.startswith("eval-policies: error: ") and message in told
    assert list(tmp_path.iterdir()) == []  # nothing was written
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.parametrize("words", ["--policies seed=no.pt", "--policies=a=no.pt b=no.pt", "--policies a=no.pt seed=3"])
def test_first_word_after_the_flag_is_a_policy(tmp_path, monkeypatch, capsys, words) -> None:
    monkeypatch.chdir(tmp_path)
    assert "the file no.pt does not exist" in refused(main, f"--robot spot {words} --terrains stairs".split(), capsys)


def test_help_examples_are_valid_commands() -> None:
    lines = [line.strip() for line in EPILOG.splitlines() if line.strip().startswith("COMMAND ")]
    assert len(lines) >= 8
    for line in lines:
        args = build_parser().parse(line.split()[1:])
        assert args.resume or (args.robot in compose_settings().robots and args.terrains and args.policies)
        compose_settings(args.overrides)
        assert all("=" in word or word.startswith("runs/") for word in [*(args.policies or ()), *args.layouts])


SHORT = ("--episodes", "2", "--seconds", "1")
ARENAS = ("friction", "grass", "boulder", "stairs")


@pytest.fixture(scope="module")
def evaluated(folder, tmp_path_factory):
    """The whole protocol with episodes of 4 s."""
    out = tmp_path_factory.mktemp("grids") / "grid"
    policies = [f"a={folder}/a.pt", f"b={folder}/b.pt"]
    words = ["--robot", "spot", "--policies", *policies, "--terrains", *ARENAS, *SHORT]
    assert main([*words, "--output_dir", str(out), "--device", "cpu"]) == 0
    return out


@pytest.mark.slow
def test_complete_protocol_writes_all_files(evaluated) -> None:
    rows = read_episodes(evaluated / "episodes.jsonl")
    assert len({row["episode_id"] for row in rows}) == 2 * 4 * 2
    names = {
        "episode_id", "policy", "environment", "completion", "progress", "zone_reached", "time_to_complete",
        "stability_score", "mean_roll", "mean_pitch", "height_variance", "mean_ang_vel", "fall_detected",
        "flip_detected", "fall_location", "fall_zone", "mean_velocity", "total_energy", "episode_length",
    }  # fmt: skip
    for row in rows:
        assert names <= set(row)
        assert 0 < row["episode_length"] <= 50 and row["total_energy"] > 0 and 1 <= row["zone_reached"] <= 5
    with open(evaluated / "summary.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert [(row["policy"], row["environment"]) for row in table] == [(p, a) for p in "ab" for a in ARENAS]
    page = (evaluated / "report.html").read_text()
    assert "Content-Security-Policy" in page and page.count("data:image/png") == 4
    for name in ("completion.png", "progress.png", "falls.png", "stability.png"):
        assert (evaluated / name).read_bytes().startswith(b"\x89PNG")
    with open(evaluated / "statistical_tests.csv", newline="") as file:
        assert {row["environment"] for row in csv.DictReader(file)} == set(ARENAS)


@pytest.mark.slow
def test_complete_grid_resumes_to_the_same_files(evaluated, capsys) -> None:
    before = {path.name: path.read_bytes() for path in evaluated.iterdir() if path.suffix in (".csv", ".jsonl")}
    assert main(["--resume", str(evaluated), "--device", "cpu"]) == 0
    assert {name: (evaluated / name).read_bytes() for name in before} == before
    assert "a       friction" in capsys.readouterr().out


@pytest.mark.slow
def test_existing_grid_folder_is_refused(evaluated, folder, capsys) -> None:
    words = f"{GRID} --terrains stairs --output_dir {evaluated}".format(folder=folder).split()
    assert "already holds a grid; use --resume, or give a new folder" in refused(main, words, capsys)


@pytest.mark.slow
def test_grid_locked_by_another_process_is_refused(evaluated, capsys) -> None:
    with locked(evaluated, "grid"):
        told = refused(main, ["--resume", evaluated], capsys)
    assert f"{evaluated}: another process is executing this grid" in told


SETTINGS = ["episodes=2", "seconds=2"]


@pytest.fixture(scope="module")
def long_grid(folder, tmp_path_factory):
    """A grid that takes long enough to be stopped: the words of its command, and its rows in one process."""
    out = tmp_path_factory.mktemp("grids") / "whole"
    words = ["--robot", "spot", "--policies", f"a={folder}/a.pt", f"b={folder}/b.pt", "--terrains", "friction"]
    words += SETTINGS
    assert main([*words, "--output_dir", str(out), "--device", "cpu"]) == 0
    return words, rows_of(out)


def rows_of(out):
    return sorted(read_episodes(out / "episodes.jsonl"), key=lambda row: row["episode_id"])


PARENT = """
import subprocess, sys
subprocess.Popen([sys.executable, "-m", "envcoder_bench.grid.run", sys.argv[1], "0", "2", "mujoco_cpu", "cpu"])
sys.stdin.read()
"""


@pytest.mark.slow
def test_workers_of_a_killed_command_end_and_the_grid_resumes(long_grid, tmp_path, monkeypatch) -> None:
    """Of two workers one has begun; its parent is a small process, which starts sooner than the command itself.

    The workers that follow them are forks of this process.
    """
    words, whole = long_grid
    out = tmp_path / "grid"
    begin_grid(check_inputs("spot", words[3:5], ["friction"], [*SETTINGS, "checkpoint_minutes=0"]), out)
    (out / "devices.json").write_text("2")
    (out / "parts" / "0").mkdir(parents=True)
    process = subprocess.Popen([sys.executable, "-c", PARENT, str(out)], cwd=ROOT, stdin=subprocess.PIPE)
    try:
        deadline = time.monotonic() + PATIENCE
        while not (out / "parts" / "0" / "state.pt").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        (orphan,) = psutil.Process(process.pid).children()
    finally:
        process.kill()
        process.communicate()
    monkeypatch.setattr(subprocess, "Popen", forked.popen("envcoder_bench.grid.run", worker))
    assert main(["--resume", str(out), "--devices", "cpu:2"]) == 0  # at once: it waits for the orphan
    assert not psutil.wait_procs([orphan], timeout=60)[1]
    assert rows_of(out) == whole


@pytest.mark.slow
def test_worker_stops_with_a_checkpoint_when_its_parent_has_died(long_grid, tmp_path, monkeypatch) -> None:
    words, whole = long_grid
    begin_grid(check_inputs("spot", words[3:5], ["friction"], SETTINGS), tmp_path)
    (tmp_path / "parts" / "0").mkdir(parents=True)
    parents = itertools.chain([7], itertools.repeat(1))  # that of the start, and later
    monkeypatch.setattr(os, "getppid", lambda: next(parents))
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert worker([str(tmp_path), "0", "1", "mujoco_cpu", "cpu"]) == 0
    assert (tmp_path / "parts" / "0" / "state.pt").exists() and len(rows_of(tmp_path / "parts" / "0")) < len(whole)


@pytest.mark.slow
def test_terminated_grid_prints_the_resume_command_and_resumes_bitwise(long_grid, tmp_path, capsys, monkeypatch):
    words, whole = long_grid
    with monkeypatch.context() as patch:
        patch.setattr(GridProgress, "__call__", lambda self, now: now.steps > 39 and os.kill(os.getpid(), SIGTERM))
        assert main([*words, "--output_dir", str(tmp_path / "grid"), "--device", "cpu"]) == 143
    assert "resume with: " in capsys.readouterr().err and len(rows_of(tmp_path / "grid")) < len(whole)
    assert main(["--resume", str(tmp_path / "grid"), "--device", "cpu"]) == 0
    assert rows_of(tmp_path / "grid") == whole


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [True, False])
def test_workers_are_stopped_with_the_command_and_their_failure_is_reported(folder, tmp_path, monkeypatch, stopped):
    inputs = check_inputs("spot", [f"a={folder}/a.pt"], ["friction"], ["episodes=1"])
    begin_grid(inputs, tmp_path / "grid")
    started, popen = [], subprocess.Popen

    def start(command, **more):  # something else instead of a worker
        code = "import time; time.sleep(60)" if stopped else f"raise SystemExit({len(started)})"
        started.append(popen([sys.executable, "-c", code], **more))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    workers = [("mujoco_cpu", "cpu")] * 2
    if stopped:
        assert not run_grid(inputs, tmp_path / "grid", workers, stop=lambda: True).complete
        assert [process.returncode for process in started] == [-SIGTERM] * 2
    else:
        with pytest.raises(UserError, match="worker 1 on cpu failed with exit code 1; resume"):
            run_grid(inputs, tmp_path / "grid", workers)


@pytest.mark.slow
def test_resume_with_a_changed_policy_is_refused(folder, evaluated, capsys) -> None:
    content = (folder / "a.pt").read_bytes()
    (folder / "a.pt").write_bytes(content + b" ")
    try:
        assert "has changed since the grid began" in refused(main, ["--resume", evaluated], capsys)
    finally:
        (folder / "a.pt").write_bytes(content)


@pytest.mark.slow
def test_custom_terrain_yaml_is_evaluated(folder, tmp_path) -> None:
    out = tmp_path / "grid"
    words = f"--robot spot --policies b={folder}/b.pt --terrains {folder}/mine.yaml --episodes 2 --seconds 1"
    assert main([*words.split(), "--output_dir", str(out), "--device", "cpu"]) == 0
    rows = read_episodes(out / "episodes.jsonl")
    assert {row["environment"] for row in rows} == {"mine"} and len(rows[0]["zone_stability"]) == 2
    assert json.loads((out / "devices.json").read_text()) == 1


@pytest.mark.slow
def test_candidates_are_ranked_on_terrains(tmp_path, capsys) -> None:
    """The human baseline and a variant are evaluated; unshaped, with its own action function, is left out."""
    (tmp_path / "a=5.py").write_text('def compute_reward(state_dict):\n    return state_dict["root_states"][:, 7]\n')
    words = f"--task SpotTerrain --candidates {tmp_path}/a=5.py --learning_iterations 1 --num_envs_per_candidate 4"
    words += f" --output_dir {tmp_path}/run --video 0 --device cpu evaluation.final_episodes=1 evaluation.num_envs=1"
    words += " task.env.terrain.numLevels=2 task.env.terrain.borderSize=3 compile_shapers=false"
    words += " train.params.config.horizon_length=4 train.params.network.mlp.units=[16,16]"
    words += " task.env.learn.episodeLength_s=0.4"
    assert eval_shapers.main(words.split()) == 0
    words = f"--robot spot --policies {tmp_path}/run --terrains boulder --episodes 1 --seconds 0.4 --device cpu"
    assert main([*words.split(), "--output_dir", str(tmp_path / "grid")]) == 0
    said = capsys.readouterr()
    assert "left out: policy unshaped" in said.err
    with open(tmp_path / "grid" / "ranking.csv", newline="") as file:
        assert sorted(row["policy"] for row in csv.DictReader(file)) == ["a=5", "human"]


@pytest.mark.slow
def test_help_does_not_import_torch() -> None:
    code = (
        "import sys; from envcoder_bench.cli.eval_policies import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\nassert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)
