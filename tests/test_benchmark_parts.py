"""What the benchmark is made of: its candidates are real and distinct, its plain learner is PPO as rl_games has it."""

import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

TESTS = Path(__file__).resolve().parent
sys.path[:0] = [str(TESTS.parent / "scripts"), str(TESTS / "trainers")]

from bench import ppo_loop, records, tables  # noqa: E402
from bench.candidates import make_candidates, structure  # noqa: E402
from bench.report import report  # noqa: E402
from oracle import Recording, StockAgent, make_params  # noqa: E402

from envcoder_bench.run.config import compose_config  # noqa: E402
from envcoder_bench.run.prepare import prepare  # noqa: E402


@pytest.mark.slow
def test_a_thousand_candidates_of_which_no_two_are_alike():
    candidates = make_candidates(1000)
    bodies = {c.source.split("\n", 1)[1] for c in candidates}  # the first line is the candidate's number
    assert len(bodies) == 1000
    assert len({structure(c.source) for c in candidates}) >= 950  # without their constants
    assert len({c.name for c in candidates}) == 1000
    assert make_candidates(4) == candidates[:4]


def test_structure_sees_through_constants_and_no_further():
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


class RecordedNoise(ppo_loop.Learner):
    """The plain learner, sampling with recorded noise as the stock agent does."""

    def act(self, obs, noise=None):
        super().act(obs)
        step = self.steps[-1]
        step["actions"] = step["mus"] + step["sigmas"] * noise
        step["neglogpacs"] = self.model.neglogp(step["actions"], step["mus"], step["sigmas"], step["sigmas"].log())
        return step["actions"]


def test_plain_learner_equals_the_stock_agent(tmp_path):
    """What the grouped learner is compared to in speed does the same work: three iterations of rl_games' agent."""
    params = make_params(bounds_loss_coef=0.01, learning_rate=1e-3)
    steps, envs = params["config"]["horizon_length"], params["config"]["num_actors"]
    recording = Recording(5, 2, envs, 3 * steps, seed=1, dtype=torch.float32)
    stock = StockAgent(params, recording, seed=0, folder=tmp_path, dtype=torch.float32)
    plain = RecordedNoise(params, 5, 2, envs, "cpu")
    plain.model.load_state_dict(stock.model.state_dict())
    for iteration in range(3):
        for t in range(iteration * steps, (iteration + 1) * steps):
            plain.act(recording.obs[t], recording.noise[t])
            plain.observe(recording.rewards[t], recording.dones[t], recording.time_outs[t])
        plain.update(recording.obs[(iteration + 1) * steps])
        assert stock.iterate()["learning_rate"] == plain.lr
        for key, expected in stock.model.state_dict().items():
            torch.testing.assert_close(plain.model.state_dict()[key], expected, rtol=1e-4, atol=1e-5, msg=key)
    assert plain.lr != 1e-3  # the schedule has moved it


def _scaling(candidates, training, **more):
    about = {"label": "box", "machine": "box, 2 cores", "date": "2026-01-02 03:04", "command": "c", "device": "cpu"}
    row = {"kind": "scaling", "candidates": candidates, "envs": 8, "physics": 1000.0, "memory_gib": 1.5}
    return {**row, "training": training, "startup_s": 3.0, **about, **more}


def test_report_fills_its_blocks_from_the_latest_records(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "before\n<!-- scaling cpu -->\nold\n<!-- end -->\nbetween\n<!-- scaling cuda -->\n<!-- end -->\nafter"
    )
    file = tmp_path / "records.jsonl"
    for row in (_scaling(2, 100.0), _scaling(4, 500.0), _scaling(4, 800.0, date="2026-01-02 03:05")):
        records.append(file, row)
    assert report(file, [page], tmp_path) == [page, tmp_path / "scaling.png"]
    text = page.read_text()
    assert "| 4 x 8 | 800 | 1,000 | 0.80 | 1.5 GiB | 3 s |" in text and "| 2 x 8 | 100 |" in text
    assert "500" not in text and "old" not in text
    assert text.endswith("between\n<!-- scaling cuda -->\n<!-- end -->\nafter")
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")
    report(file, [page], tmp_path)
    assert page.read_text() == text


def test_processes_are_compared_to_this_tool_on_the_same_machine_and_size():
    alone = {**_scaling(0, 0.0), "kind": "processes", "processes": 8, "each": [5.0] * 8, "total": 40.0}
    known = [_scaling(250, 800.0), _scaling(1000, 900.0), _scaling(250, 1.0, label="other"), _scaling(250, 2.0, envs=9)]
    row = tables.table("processes", tables.select("processes", [alone], known))[-1]
    assert row == "| 8 x 8 | 5 | 40 | 800 (250 candidates) | 20.0 |"
    assert tables.table("processes", tables.select("processes", [alone]))[-1] == "| 8 x 8 | 5 | 40 |  |  |"
