"""eval-shapers --check: the checks of a run without training."""

from pathlib import Path

import pytest
from helpers import write_candidates

from envcoder_bench.cli.eval_shapers import main
from envcoder_bench.run import lint
from envcoder_bench.tools.check import CheckResult, check_candidates, render_check

pytestmark = pytest.mark.slow

CPU = ["--sim", "mujoco_cpu", "--device", "cpu"]
SMALL = ["sim=mujoco_cpu", "device=cpu", "num_envs_per_candidate=5"]
FILES = {
    "good": 'def compute_reward(pole_angle):\n    up = torch.cos(pole_angle)\n    return 2 * up, {"up": up}\n',
    "kept": "LAST = []\n\n\ndef compute_reward(pole_angle):\n    LAST.append(1)\n    return pole_angle\n",
    "late": "def compute_reward(progress_buf):\n    return 1 / (progress_buf - 1)\n",
    "leaves": "def compute_reward(pole_angle):\n    return torch.as_tensor(pole_angle.numpy() * 1.0)\n",
    "sees": "def compute_observation(dof_pos):\n    return torch.cat((dof_pos, dof_pos, dof_pos), dim=1)\n",
    "syntax": "def compute_reward(:\n",
    "wide": "def compute_torque(action, dof_vel):\n    return 0 * dof_vel + action.sum(dim=1, keepdim=True)\n",
}


@pytest.fixture(scope="module", autouse=True)
def no_run_before():
    """Other tests' runs on these tasks keep trajectories in the cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lint, "cached", lambda spec: Path("/nowhere/trajectories.npz"))
        yield


def by_name(result):
    return {row.name: row for row in result.rows}


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    write_candidates(folder, FILES)
    return folder, by_name(check_candidates("Cartpole", SMALL, [folder]))


def test_check_reports_functions_and_widths(checked):
    _, rows = checked
    assert list(rows) == ["human", "unshaped", *sorted(FILES)]
    assert rows["good"].defines == ("compute_reward",) and rows["sees"].defines == ("compute_observation",)
    assert (rows["good"].obs_dim, rows["good"].action_dim) == (4, 1)
    assert (rows["sees"].obs_dim, rows["wide"].action_dim) == (6, 100)
    assert rows["human"].baseline and rows["human"].status == "ok" and not rows["good"].baseline


def test_check_reports_functions_that_are_not_compiled_and_why(checked):
    folder, rows = checked
    (reason,) = rows["leaves"].not_compiled
    assert reason.place == f"{folder}/leaves.py:2"
    assert reason.text.startswith("in compute_reward: takes numbers of the state out of torch")
    (reason,) = rows["kept"].not_compiled
    assert reason.place == f"{folder}/kept.py:4"
    assert reason.text.startswith("in compute_reward: may depend on what an earlier call has kept")
    assert any(f"{folder}/kept.py:4: in compute_reward: keeps values" in str(note) for note in rows["kept"].notes)
    assert f"{folder}/wide.py:1: compute_torque takes actions of any width" in str(rows["wide"].notes[0])
    assert not rows["good"].not_compiled and not rows["good"].notes and not rows["human"].not_compiled


def test_candidates_are_checked_on_a_state_with_torques(tmp_path):
    code = "def compute_reward(dof_force_tensor):\n    x = dof_force_tensor.abs().mean(dim=1)\n    return x / x.max()\n"
    write_candidates(tmp_path, {"scaled": code})
    row = by_name(check_candidates("Ant", SMALL, [tmp_path]))["scaled"]
    assert row.status == "ok", row.error


def test_failures_are_reported_with_their_line(checked):
    folder, rows = checked
    assert {name for name, row in rows.items() if row.status == "failed"} == {"syntax", "late"}
    assert rows["syntax"].error.startswith(f"{folder}/syntax.py:1: ")
    assert rows["late"].error.startswith(f"{folder}/late.py:2: in compute_reward: returned NaN or infinity")


def test_check_reports_reward_and_components_of_one_step(checked):
    """The reward is that of the candidate's function on the state after one step."""
    _, rows = checked
    mean, least, greatest = rows["good"].reward
    assert 1.5 < least <= mean <= greatest <= 2.0
    assert rows["good"].components["up"] == pytest.approx((mean / 2, least / 2, greatest / 2))
    assert rows["wide"].reward is not None and rows["late"].reward is None
    alone = by_name(check_candidates("Cartpole", SMALL, [checked[0] / "good.py"]))
    assert alone["good"].reward == rows["good"].reward  # neighbours change nothing


def test_check_in_several_parts_gives_the_same_rows(checked, monkeypatch):
    monkeypatch.setattr("envcoder_bench.tools.check.MOST_ENVS", 12)
    again = by_name(check_candidates("Cartpole", SMALL, [checked[0]]))
    assert again == checked[1]


@pytest.mark.parametrize("task", ["AllegroHand", "SpotTerrain"])  # tests/tasks/test_shipped_candidates.py has all
def test_shipped_candidates_pass_the_check(task):
    few_tiles = ["task.env.terrain.numLevels=2", "task.env.terrain.borderSize=3"] * ("Terrain" in task)
    result = check_candidates(task, [*SMALL, "num_envs_per_candidate=3", *few_tiles], candidate_idx="0")
    assert result.passed and len(result.rows) == 3
    assert all(row.reward is not None and row.obs_dim and row.action_dim for row in result.rows)
    assert not any(row.not_compiled for row in result.rows if row.baseline)


def test_untrusted_files_are_checked_in_the_jail(checked, capfd):
    folder, _ = checked
    files = [folder / f"{name}.py" for name in ("good", "leaves")]
    rows = by_name(check_candidates("Cartpole", [*SMALL, "untrusted=true"], files))
    assert rows["good"].reward is not None and rows["good"].defines == ("compute_reward",)
    assert rows["leaves"].status == "failed" and "untrusted code must be traceable" in rows["leaves"].error


def test_check_command_prints_the_table_and_writes_no_files(checked, capsys, tmp_path, monkeypatch):
    folder, _ = checked
    monkeypatch.setenv("COLUMNS", "100")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    words = ["--task", "Cartpole", "--check", *CPU, "--num_envs_per_candidate", "5"]
    assert main([*words, "--candidates", str(folder)]) == 1
    shown = capsys.readouterr()
    assert "failed (2 of 7 candidates):\n  late\n" in shown.out and f"    {folder}/syntax.py:1\n" in shown.out
    assert "not compiled, and slower for it:\n  kept\n" in shown.out and not shown.err
    assert main([*words, "--candidates", str(folder), "--candidate_idx", "0", "--no_baselines"]) == 0
    shown = capsys.readouterr().out
    assert "good" in shown and "human" not in shown and "failed" not in shown
    assert main([*words, "--candidates", f"{folder}/sees.py", "--shaper_types", "compute_reward"]) == 2
    assert "nothing to check: " in capsys.readouterr().err
    both = [f"{folder}/sees.py", f"{folder}/good.py"]
    assert main([*words, "--candidates", *both, "--shaper_types", "compute_reward", "--baseline", "unshaped"]) == 0
    assert "skipped, because they define none of the functions asked for: sees" in capsys.readouterr().out
    assert main([*words, "--candidates", "nowhere.py"]) == 2
    assert not list(work.iterdir())  # nothing is written


def test_terms_that_hardly_count_are_named_and_the_form_of_a_reward(capfd):
    texts = {
        "alive": 'def compute_reward(pole_angle):\n    x = {"up": pole_angle.cos(), "bonus": 1.0}\n'
        "    return (x['up'] + 1.0).clamp(max=1.9), x\n",
        "plain": 'def compute_reward(pole_angle):\n    return pole_angle * pole_angle, {"angle": pole_angle}\n',
    }
    result = check_candidates("Cartpole", SMALL, texts)
    rows = by_name(result)
    assert rows["alive"].form == "its terms are up, bonus"
    assert "angle is multiplied by itself (line 2)" in rows["plain"].form
    assert len(rows["alive"].notes) == 1 and "bonus is 1 in all" in str(rows["alive"].notes[0])
    assert not rows["plain"].notes and not rows["human"].form
    assert "alive: its terms are up, bonus" in str(result)
    assert "not judged: whether a reward opposes the fitness or pays for standing still" in str(result)
    assert max(map(len, render_check(result, 70).splitlines())) <= 70
    assert "off" in render_check(CheckResult(result.rows, False, 5))
