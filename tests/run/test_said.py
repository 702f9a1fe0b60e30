"""Messages of a run: repeated warnings on one line on the screen, everything in run.log."""

import pytest
from helpers import CARTPOLE_QUICK, run, write_candidates

from envcoder_bench.cli.eval_shapers import main

pytestmark = pytest.mark.slow

KEEPS = "LAST = []\n\n\ndef compute_reward(pole_angle):\n    LAST.append(1)\n    return torch.cos(pole_angle)\n"
WIDE = "def compute_torque(action, dof_vel):\n    return 0 * dof_vel + action.sum(dim=1, keepdim=True)\n"
LATE = """def compute_reward(pole_angle, progress_buf):
    if progress_buf.max() > 3:
        raise ValueError("too late")
    return pole_angle
"""
SIZE = ["compile_shapers=false", "--num_envs_per_candidate", 2, "--learning_iterations", 2, "--no_baselines"]


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    folder = tmp_path_factory.mktemp("said")
    sources = {f"keeps{i}": KEEPS for i in range(5)}
    sources.update({f"broken{i}": "def compute_reward(:\n" for i in range(2)}, wide=WIDE)
    sources.update({f"late{i}": LATE for i in range(2)})
    paths = write_candidates(folder / "files", sources)
    return folder, paths


def test_run_groups_repeated_messages_and_logs_all_of_them(said, capfd):
    folder, paths = said
    output = run(folder / "run", *CARTPOLE_QUICK, *SIZE, "--candidates", *paths)
    err = capfd.readouterr().err
    keeps = [line for line in err.splitlines() if "keeps values" in line]
    places = [f"{folder}/files/keeps{i}.py:4" for i in range(3)]
    assert keeps == [
        f"{places[0]}: in compute_reward: keeps values between calls, which --resume cannot restore"
        f" (5 times; also {places[1]}, {places[2]} and 2 more; all in run.log)"
    ]
    assert sum("cannot be evaluated" in line for line in err.splitlines()) == 1
    assert sum("failed: " in line for line in err.splitlines()) == 1  # while it trains, too
    log = (output / "run.log").read_text(encoding="utf-8")
    assert [log.count(f"keeps{i}.py:4: in compute_reward: keeps values") for i in range(5)] == [1] * 5
    for text in (
        "warning: ", "takes actions of any width", "candidate broken1 cannot be evaluated", "folder: ", "memory: about",
        "candidate late0 (seed 0) failed: ", "candidate late1 (seed 0) failed: ", "iteration 2 of 2: ",
        "the ranking",
    ):  # fmt: skip
        assert text in log, text
    assert err.index("keeps values") < err.index("folder: ") < err.index("memory: about") < err.index("failed: ")


def test_unwritable_run_folder_is_reported_with_the_reason(tmp_path, capsys, monkeypatch):
    files = write_candidates(tmp_path / "files", {"good": "def compute_reward(pole_angle):\n    return pole_angle\n"})
    folder, make = tmp_path / "run", type(tmp_path).mkdir

    def refuse(path, *words, **flags):
        if path == folder:
            raise FileNotFoundError(2, "No such file or directory", str(path))  # as /proc does
        return make(path, *words, **flags)

    monkeypatch.setattr(type(tmp_path), "mkdir", refuse)
    assert main([str(word) for word in (*CARTPOLE_QUICK, *SIZE, "--candidates", *files, "--output_dir", folder)]) == 2
    assert f"{folder} cannot be written: No such file or directory" in capsys.readouterr().err
