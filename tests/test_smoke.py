"""One small training from the command to the ranking, among the fast tests."""

import pytest
from helpers import CARTPOLE_QUICK, results, run, weights, write_candidates

GOOD = 'def compute_reward(pole_angle):\n    c = torch.cos(pole_angle)\n    return c, {"cosine": c}\n'
FAILS = (
    "def compute_reward(progress_buf, pole_angle):\n    if bool((progress_buf > 20).any()):\n"
    "        raise RuntimeError('on purpose')\n    return torch.cos(pole_angle)\n"
)


@pytest.mark.smoke
def test_candidates_are_ranked_and_faults_fail_only_their_candidates(tmp_path, capsys):
    files = write_candidates(tmp_path / "files", {"good": GOOD, "fails": FAILS, "misspelt": "def compute_reward(:\n"})
    words = ["--num_envs_per_candidate", 4, "--learning_iterations", 2, "--candidates", *files]
    output = run(tmp_path / "run", *CARTPOLE_QUICK, *words)
    rows = results(output)
    assert rows["status"].to_dict() == {
        "human": "ok", "unshaped": "ok", "untrained": "ok",
        "good": "ok", "fails": "failed", "misspelt": "failed at load",
    }  # fmt: skip
    assert rows.loc[["human", "unshaped", "good"], "fitness"].between(0.0, 1.0).all()
    assert "fails.py:3: in compute_reward: raised RuntimeError: on purpose" in rows.loc["fails", "error"]
    assert {"a2c_network.mu.weight", "a2c_network.sigma"} <= set(weights(output, "good"))
    assert (output / "summary.json").is_file()
    assert "cosine" in (output / "report.html").read_text()
    assert "good" in capsys.readouterr().out
