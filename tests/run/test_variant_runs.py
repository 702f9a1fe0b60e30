"""Runs with --terms and --sweep: their effects as files, and the ways in which runs go on."""

import shutil

import helpers
import pytest
from helpers import (
    CARTPOLE_QUICK,
    TINY,
    TINY_WORDS,
    assert_same_weights,
    refused,
    run,
    stopped_at,
    weights,
    write_candidates,
)
from test_parallel import threads  # noqa: F401, a fixture

from envcoder_bench import evaluate, extend, resume
from envcoder_bench.cli.eval_shapers import main
from envcoder_bench.run.train import executor
from envcoder_bench.run.train.rungs import Stop
from envcoder_bench.video.page import write_page

pytestmark = pytest.mark.slow

MINE = """
WEIGHTS = {"swing": 0.1}
def compute_reward(pole_angle, pole_vel):
    terms = {"upright": torch.cos(pole_angle), "swing": -WEIGHTS["swing"] * torch.abs(pole_vel)}
    return torch.where(torch.abs(pole_angle) > 1.5, -2.0, sum(terms.values())), terms
"""
RATE, ENTROPY = "train.params.config.learning_rate", "train.params.config.entropy_coef"
SETTINGS = {**helpers.SETTINGS, **TINY}
RACED = {**SETTINGS, "learning_iterations": 4, "evaluation.points": 4, "race": True, "race.rungs": [2]}


def evaluated(folder, texts=None, **settings):
    return evaluate("Cartpole", {"mine": MINE} if texts is None else texts, output_dir=folder, **settings)


@pytest.fixture(scope="module")
def divided(tmp_path_factory):
    return evaluated(tmp_path_factory.mktemp("run") / "a", terms=True, **SETTINGS)


def test_run_has_effects_as_table_and_file(divided):
    assert len(divided.terms) == 6 and set(divided.terms["term"]) == {"upright", "swing"}
    assert (divided.folder / "terms.csv").is_file() and divided.summary["paths"]["terms"] == "terms.csv"
    assert "terms of mine" in str(divided) and "one seed" in str(divided)
    by_name = divided.results.set_index("candidate")["fitness"]
    effects = divided.terms.set_index("candidate")["effect"]
    for name, effect in effects.items():
        assert effect == pytest.approx(by_name[name] - by_name["mine"], abs=1e-6)
    read = resume(divided.folder)
    assert read.terms.equals(divided.terms) and read.table() == divided.table()
    page = write_page(divided.folder, 0).read_text(encoding="utf-8")
    assert "The terms of mine" in page and "--candidates mine.py --terms" in page


def test_original_and_its_variants_train_as_if_alone(divided, tmp_path):
    alone = evaluated(tmp_path / "a", **SETTINGS)
    for name in ("mine", "human", "unshaped"):
        assert_same_weights(weights(divided.folder, name), weights(alone.folder, name))
    variant = (divided.folder / "candidates" / "mine.swing_x0" / "source.py").read_text(encoding="utf-8")
    written = MINE.replace('-WEIGHTS["swing"] *', '0.5 * -WEIGHTS["swing"] *')
    other = evaluated(tmp_path / "b", {"x": variant, "written": written}, no_baselines=True, **SETTINGS)
    for name, same in (("mine.swing_x0", "x"), ("mine.swing_x0.5", "written")):
        assert_same_weights(weights(divided.folder, name), weights(other.folder, same))


def test_variants_are_extended_by_seeds(divided, tmp_path):
    copy = shutil.copytree(divided.folder, tmp_path / "copy")
    larger = extend(copy, seeds=2)
    assert set(larger.terms["seeds"]) == {2} and not larger.terms["ci_low"].isna().all()


def test_race_with_variants_says_who_was_stopped(tmp_path, monkeypatch):
    stopped = ["mine.swing_x0", "mine.swing_x2"]
    monkeypatch.setattr(executor, "decide", lambda *_: [Stop(name, 0.1, 9, "behind") for name in stopped])
    result = evaluated(tmp_path / "a", terms=True, **RACED)
    terms = result.terms.set_index("candidate")
    assert list(terms.index[terms["status"] == "stopped at 2"]) == stopped
    assert terms.loc[stopped, "effect"].isna().all() and terms["effect"].notna().sum() == 4


def test_group_with_a_setting_of_its_own_has_the_weights_of_a_run_with_it_also_raced_and_resumed_by_workers(
    tmp_path,
    monkeypatch,
    threads,  # noqa: F811
):
    monkeypatch.setattr(
        executor, "decide", lambda *_: [Stop("mine.learning_rate=0.01+entropy_coef=0", 0.1, 9, "behind")]
    )
    by_two = {**RACED, "sim": "auto", "device": "auto", "devices": "cpu:2"}
    first = evaluated(tmp_path / "a", sweep={RATE: [3e-4, 0.01], ENTROPY: [0, 0.05]}, **stopped_at(3), **by_two)
    assert not first.complete
    result = resume(first.folder)
    assert set(result.results["status"]) == {"ok", "stopped"}
    settings = {**SETTINGS, "learning_iterations": 4, "evaluation.points": 4, RATE: 0.01, ENTROPY: 0.05}
    alone = evaluated(tmp_path / "b", no_baselines=True, **settings)
    name = "mine.learning_rate=0.01+entropy_coef=0.05"
    assert_same_weights(weights(result.folder, name), weights(alone.folder, "mine"))


def test_stopped_run_has_its_effects_when_it_is_resumed(divided, tmp_path):
    first = evaluated(tmp_path / "a", terms=True, **stopped_at(2), **SETTINGS)
    assert not first.complete and first.terms.empty and not first.studies
    assert resume(first.folder).terms.equals(divided.terms)


def test_command_divides_and_sweeps(tmp_path, capsys):
    (path,) = write_candidates(tmp_path / "files", {"mine": MINE})
    words = [*CARTPOLE_QUICK, "--num_envs_per_candidate", 4, "--learning_iterations", 1, "--candidates", path]
    words += TINY_WORDS
    run(tmp_path / "a", *words, "--sweep", "swing=0,0.1,1", "--sweep", f"{RATE}=1e-4,3e-4", "--sweep_points", 4)
    assert "swing  learning_rate  change" in capsys.readouterr().out and (tmp_path / "a" / "sweep_mine.png").is_file()
    refusal = refused(main, [*words, "--terms", "--check", "--output_dir", tmp_path / "b"], capsys)
    assert "--terms trains" in refusal
    assert not (tmp_path / "b").exists()
