"""A complete run that is extended is bitwise one larger run."""

import json
import shutil
from pathlib import Path

import helpers
import pytest
from helpers import (
    CARTPOLE_QUICK,
    TABLES,
    TINY_WORDS,
    Killed,
    assert_same_policies,
    assert_same_tables,
    contents,
    refused,
    run,
    write_candidates,
)

from envcoder_bench import UserError, extend, resume
from envcoder_bench.cli.eval_shapers import main
from envcoder_bench.run import extend as module
from envcoder_bench.run.folder.provenance import Provenance
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.run.train.executor import Executor

pytestmark = pytest.mark.slow

WORDS = [*CARTPOLE_QUICK, "--num_envs_per_candidate", 4, *TINY_WORDS]
CANDIDATES = {**helpers.CANDIDATES, "breaks_midway": helpers.BREAKS_MIDWAY.replace("25", "3")}
FEW, MANY = ("breaks_midway", "cosine"), tuple(sorted(CANDIDATES))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    return {path.stem: path for path in write_candidates(folder, CANDIDATES)}


def made(output, files, names, seeds, iterations, *words):
    given = ["--candidates", *(files[name] for name in names), "--seeds", seeds, "--learning_iterations", iterations]
    return run(output, *WORDS, *given, *words)


@pytest.fixture(scope="module")
def small(files, tmp_path_factory):
    return made(tmp_path_factory.mktemp("small") / "run", files, FEW, 1, 4)


@pytest.fixture(scope="module")
def longer(files, tmp_path_factory):
    return made(tmp_path_factory.mktemp("longer") / "run", files, FEW, 1, 9)


@pytest.fixture
def copy(small, tmp_path):
    return shutil.copytree(small, tmp_path / "copy")


def text(folder, name):
    return (folder / name).read_text(encoding="utf-8")


def assert_one_larger_run(output, larger, tables=TABLES):
    assert_same_tables(output, larger, tables)
    assert_same_policies(output, larger, len(list(larger.rglob("*.pth"))))
    assert not (output / "checkpoint.pth").exists() and not (output / "jobs").exists()
    ranking = [json.loads(text(folder, "summary.json"))["ranking"] for folder in (output, larger)]
    assert [row["candidate"] for row in ranking[0]] == [row["candidate"] for row in ranking[1]]
    configs = [RunFolder(folder).read()[0] for folder in (output, larger)]
    assert configs[0] == configs[1]


def assert_one_wave(*folders):
    """Check that an extension by groups counts its waves anew; groups that go on train in a wave of their own."""
    assert [json.loads(text(folder, "summary.json"))["memory"]["waves"] for folder in folders] == [1] * len(folders)


def test_extension_by_candidates_equals_a_larger_run(copy, files, tmp_path, capsys):
    order = (*FEW, *(name for name in MANY if name not in FEW))
    larger = made(tmp_path / "larger", files, order, 1, 4)
    untouched = {path: path.read_bytes() for path in (copy / "candidates").rglob("*.pth")}
    old = [copy / f"{name}.png" for name in ("ranking", "learning_curves", "race", f"terms_{FEW[0]}")]
    for picture in old:  # of an earlier version
        picture.touch()
    capsys.readouterr()
    assert main(["--extend", str(copy), "--candidates", *map(str, files.values())]) == 0
    assert not any(map(Path.exists, old))
    assert "is extended: candidates breaks_at_once, wide" in capsys.readouterr().err
    assert_one_larger_run(copy, larger)
    assert_one_wave(copy, larger)
    assert untouched == {path: path.read_bytes() for path in untouched}  # not trained again


def test_extension_by_seeds_equals_a_larger_run(copy, files, tmp_path):
    larger = made(tmp_path / "larger", files, FEW, 3, 4)
    assert main(["--extend", str(copy), "--seeds", "3"]) == 0
    assert_one_larger_run(copy, larger)
    assert_one_wave(copy, larger)


def test_extension_by_iterations_starts_from_the_saved_state(copy, longer, monkeypatch):
    begun = []
    from envcoder_bench.run.train import session

    train = session.Session.train
    monkeypatch.setattr(session.Session, "train", lambda self: (begun.append(self.iteration), train(self))[1])
    assert main(["--extend", str(copy), "--learning_iterations", "9"]) == 0
    assert begun == [4]
    assert_one_larger_run(copy, longer, ("results.csv",))
    # what does not depend on when evaluations are made; every iteration of so short a run is logged
    curves = [[line.split(",")[:4] + line.split(",")[5:] for line in text(folder, "curves.csv").splitlines()]
              for folder in (copy, longer)]  # fmt: skip
    assert curves[0] == curves[1]
    assert text(copy, "components.csv") == text(longer, "components.csv")


def test_extension_without_states_trains_from_the_beginning(copy, longer, capsys):
    shutil.rmtree(copy / "states")
    assert main(["--extend", str(copy), "--learning_iterations", "9"]) == 0
    assert "from the beginning" in capsys.readouterr().err
    assert_one_larger_run(copy, longer)


def test_extension_of_a_schedule_by_length_trains_from_the_beginning(files, tmp_path, capsys):
    words = ["train.params.config.lr_schedule=linear", "--no_baselines"]
    output = made(tmp_path / "run", files, FEW, 1, 1, *words)
    larger = made(tmp_path / "larger", files, FEW, 1, 2, *words)
    assert main(["--extend", str(output), "--learning_iterations", "2"]) == 0
    assert "from the beginning" in capsys.readouterr().err
    assert_one_larger_run(output, larger)


def kill_after(count, patch):
    """Raise Killed after so many of the changes that an extension makes to the folder before it trains."""
    left = [count]

    def counted(work):
        def wrapped(*args, **kwargs):
            done = work(*args, **kwargs)
            left[0] -= 1
            if not left[0]:
                raise Killed
            return done

        return wrapped

    def train(*args):
        left[0] = 0
        return work(*args)

    for place, name in (
        (module, "write_atomic"), (RunFolder, "write"), (Path, "unlink"),
        (Provenance, "write"),
    ):  # fmt: skip
        patch.setattr(place, name, counted(getattr(place, name)))
    work = Executor.run
    patch.setattr(Executor, "run", train)


def test_killed_extension_leaves_the_old_or_the_larger_run(files, tmp_path, monkeypatch):
    larger = made(tmp_path / "larger", files, ("cosine", "wide"), 2, 2, "--no_baselines")
    output = made(tmp_path / "run", files, ("cosine",), 1, 1, "--no_baselines")
    old = {name: text(output, name) for name in ("results.csv", "config.yaml")}
    outcomes = []
    while outcomes[-1:] != ["done"]:
        own = shutil.copytree(output, tmp_path / f"killed_{len(outcomes)}")
        with monkeypatch.context() as patch:
            kill_after(len(outcomes) + 1, patch)
            try:
                extend(own, [files["wide"]], seeds=2, learning_iterations=2)
                outcomes.append("done")
            except Killed:
                outcomes.append("old" if len(resume(own).rows) == 1 else "larger")
        if outcomes[-1] == "old":
            assert old == {name: text(own, name) for name in old} and (own / "summary.json").is_file()
        else:
            assert_one_larger_run(own, larger, ("results.csv", "components.csv"))
    # source; digest and state, digest and checkpoint, summary; run.json, config.yaml
    assert outcomes == ["old"] * 6 + ["larger"] * 2 + ["done"]
    assert_one_larger_run(tmp_path / "killed_8", larger, ("results.csv", "components.csv"))


@pytest.mark.parametrize(
    "words, message",
    [
        ([], "there is nothing to add"),
        (["--seeds", "1"], "there is nothing to add"),
        (["--learning_iterations", "3"], "--learning_iterations 3: the run has 4, and can only be extended"),
        (["--candidate_idx", "0"], "give both"),
        (["--seed", "3"], "--extend takes no other flag but --candidates"),
        (["--seeds", "2", "seed=3"], "--extend takes no other flag but --candidates"),
        (["--candidates", "FILES/cosine.py"], "the run has another candidate named cosine"),
        (["--candidates", "FILES/COSINE.py"], "the same name on some systems"),
        (["--candidates", "FILES/missing.py"], "does not exist"),
        (["--candidates", "FILES/broken.py"], "broken.py:1: syntax error"),
        (["--seeds", "2", "--devices", "7:x"], "devices"),
    ],
)
def test_bad_input_is_refused_and_changes_no_file(copy, tmp_path, words, message, capsys, monkeypatch):
    monkeypatch.setattr(RunSpec, "try_code", lambda _: pytest.fail("the task's code was run"))
    write_candidates(tmp_path / "FILES", {name: "def compute_reward(pole_angle): ..." for name in ("cosine", "COSINE")})
    write_candidates(tmp_path / "FILES", {"broken": "def f("})
    before = contents(copy)
    words = [word.replace("FILES", str(tmp_path / "FILES")) for word in words]
    assert message in refused(main, ["--extend", copy, *words], capsys)
    assert contents(copy) == before


def test_incomplete_or_changed_runs_cannot_be_extended(copy, tmp_path, monkeypatch, capsys):
    def refused(folder, message):
        with pytest.raises(UserError, match=message):
            extend(folder, seeds=2)

    refused(tmp_path / "nowhere", "--extend .*: it is not the folder of a run")
    source = copy / "candidates" / "cosine" / "source.py"
    good = source.read_text()
    source.write_text(good + "# changed")
    refused(copy, "was changed since the run began")
    source.write_text(good)
    rows = text(copy, "results.csv")
    (copy / "results.csv").write_text("".join(rows.splitlines(keepends=True)[:-1]))
    refused(copy, "its rows are not those of the run")
    (copy / "results.csv").write_text(rows.replace(",ok,0.", ",ok,00."))
    refused(copy, r"results\.csv was changed since the run wrote it: restore a copy of it; or delete run\.json")
    (copy / "results.csv").write_text(rows)
    (copy / "summary.json").unlink()
    refused(copy, "the run is not complete; first .*--resume")


def test_race_cannot_be_extended(files, tmp_path):
    output = made(tmp_path / "run", files, FEW, 1, 3, "race.enabled=true")
    with pytest.raises(UserError, match="the run is a race"):
        extend(output, seeds=2)
    assert not (output / "states").exists()
