"""--resume of damaged run folders: it continues with a message or gives a remedy, and nothing is lost."""

import contextlib
import json
import os
import re
import shutil
import zipfile
from pathlib import Path

import pytest
import torch
from helpers import (
    CARTPOLE_QUICK,
    SETTINGS,
    TABLES,
    TINY,
    TINY_WORDS,
    Killed,
    assert_same_policies,
    assert_same_tables,
    contents,
    run,
    stopped_when,
    text_of,
    write_candidates,
)

import envcoder_bench
from envcoder_bench import __main__ as verbs
from envcoder_bench.cli.eval_shapers import main
from envcoder_bench.run.folder.run_folder import RunFolder

pytestmark = pytest.mark.slow

GOOD = 'def compute_reward(pole_angle):\n    c = torch.cos(pole_angle)\n    return c, {"cosine": c}\n'
WORDS = [
    *CARTPOLE_QUICK, "--num_envs_per_candidate", 4, "--learning_iterations", 8, "--seed", 3,
    "checkpoint_minutes=0", "--no_baselines", *TINY_WORDS,
]  # fmt: skip


def words(folder):
    return [*WORDS, "--candidates", *write_candidates(folder / "files", {"good": GOOD, "other": GOOD})]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    return run(folder / "run", *words(folder))


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    output = folder / "run"

    def reached():
        saved = RunFolder(output).load_checkpoint()
        return saved is not None and any(job.iteration >= 7 for job in saved.jobs)

    with stopped_when(reached):
        run(output, *words(folder))
    return output


def cut(path, size):
    path.write_bytes(path.read_bytes()[:size])


def replace(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def flip(path):
    """Change one byte of the numbers of a checkpoint's largest tensor."""
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as parts:
        part = parts.read(max(parts.infolist(), key=lambda info: info.file_size))
    assert part in content
    content[content.index(part) + len(part) // 2] ^= 1
    path.write_bytes(content)


def digit(path):
    """Change the last digit of the first row."""
    head, row, rest = path.read_bytes().split(b"\n", 2)
    assert row[-1:].isdigit()
    path.write_bytes(b"\n".join([head, row[:-1] + (b"1" if row[-1:] != b"1" else b"2"), rest]))


def saved_again(path, change):
    """Change a checkpoint, and save it as torch does, with valid checksums."""
    content = torch.load(path, weights_only=True)
    change(content)
    torch.save(content, path)


AGAIN = r" was changed since the run wrote it: restore a copy of it; or delete run\.json, and it is used as it is"
ENDS = {  # what is done to a killed run: what is said
    "wave cut": (lambda f: cut(*(f / "jobs").iterdir(), 9000), r"jobs/\w+\.pth is damaged \(it is truncated"),
    "wave with one other byte": (
        lambda f: flip(*(f / "jobs").iterdir()),
        r"jobs/\w+\.pth is damaged \(the checksum of \S+ is wrong\): restore it from a copy; or delete it",
    ),
    "checkpoint saved again": (
        lambda f: saved_again(f / "checkpoint.pth", lambda saved: saved.update(seconds=1.0)),
        rf"checkpoint\.pth{AGAIN}",
    ),
    "wave saved again": (
        lambda f: saved_again(*(f / "jobs").iterdir(), lambda saved: saved["training"].update(iteration=4)),
        rf"jobs/\w+\.pth{AGAIN}",
    ),
    "checkpoint a folder": (
        lambda f: ((f / "checkpoint.pth").unlink(), (f / "checkpoint.pth").mkdir()),
        r"checkpoint\.pth is damaged",
    ),
    "curves foreign": (
        lambda f: (f / "curves.csv").write_text("a,b\n"),
        r"curves\.csv is damaged: its first line must be .*; restore a copy of it, or delete it to continue without",
    ),
    "task changed": (
        lambda f: replace(f / "config.yaml", "name: Cartpole\n  env:", "name: Ant\n  env:"),
        r"config\.yaml was changed since the run began \(task\.name: Cartpole -> Ant\): undo that, or begin a new",
    ),
    "seeds changed": (
        lambda f: replace(f / "config.yaml", "seeds: 1", "seeds: 2"),
        r"was changed since the run began \(seeds: 1 -> 2\).* only .*max_memory, .* may be changed",
    ),
    "task changed, format 1": (
        lambda f: (
            (f / "run.json").unlink(),
            replace(f / "config.yaml", "name: Cartpole\n  env:", "name: Ant\n  env:"),
        ),
        r"config\.yaml: task\.env",
    ),
    "size changed, format 1": (
        lambda f: (
            (f / "run.json").unlink(),
            replace(f / "config.yaml", "num_envs_per_candidate: 4", "num_envs_per_candidate: 5"),
        ),
        r"jobs/\w+\.pth does not fit the run's config\.yaml \(.*\): restore both as they were",
    ),
    "config and record cut": (
        lambda f: (cut(f / "config.yaml", 570), cut(f / "run.json", 200)),
        r"the run is damaged: config\.yaml: line \d+: .*; restore a copy, or begin a new run",
    ),
    "newer": (
        lambda f: replace(f / "run.json", '"format": 1', '"format": 9'),
        r"run\.json has format 9, and this version of EnvCoderBench reads formats up to 1: use the version",
    ),
    "source edited": (
        lambda f: replace(f / "candidates" / "good" / "source.py", "return", "return 1.0 *"),
        r"good/source\.py was changed since the run began: undo that, or begin a new run",
    ),
    "source gone": (
        lambda f: (f / "candidates" / "good" / "source.py").unlink(),
        r"the run is damaged: .*source\.py: No such file or directory",
    ),
}


@pytest.mark.parametrize("what", ENDS)
def test_resume_of_an_unusable_run_reports_the_damage_and_keeps_files(tmp_path, killed, capsys, what):
    folder = tmp_path / "run"
    shutil.copytree(killed, folder)
    damage, message = ENDS[what]
    damage(folder)
    before = contents(folder)
    assert main(["--resume", str(folder)]) == 2
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("eval-shapers: ")]
    assert len(told) == 1 and re.search(message, told[0]), told
    after = contents(folder)
    for name in before:  # logs are cut to the checkpoint, as at every resumption; run.log and the status have the error
        assert after[name] == before[name] or name.suffix in (".csv", ".log", ".html"), name


LOST = r"\.csv: \d+ rows from before are lost; the run continues"
GOES_ON = {  # what is done to a killed run: all that is said
    "logs missing, empty and cut, config edited": (
        lambda f: (
            (f / "curves.csv").unlink(),
            cut(f / "points.csv", 0),
            cut(f / "results.csv", 100) if (f / "results.csv").exists() else None,
            replace(f / "config.yaml", "max_memory: null", "max_memory: 8GiB"),
        ),
        [
            rf"curves{LOST}",
            rf"points{LOST}",
            r"config\.yaml was changed since the run began \(max_memory: null -> 8GiB\): using the new values",
        ],
    ),
    "curves cut, config cut, other versions": (
        lambda f: (
            cut(f / "curves.csv", 300),
            cut(f / "config.yaml", len((f / "config.yaml").read_bytes()) // 2),
            replace(f / "run.json", f'"torch": "{torch.__version__}"', '"torch": "1.0"'),
        ),
        [
            rf"curves{LOST}",
            r"config\.yaml is damaged \(its end is missing\): using the config in run\.json",
            r"the run is resumed with torch \S+ \(was 1\.0\): the results may not be bitwise those of an uninterrupted",
        ],
    ),
    "record cut": (
        lambda f: cut(f / "run.json", 200),
        [r"run\.json is damaged .*: changes of config\.yaml cannot be detected", "the software and device with"],
    ),
    "record gone": (
        lambda f: (f / "run.json").unlink(),
        ["changes of config.yaml cannot be detected", "the software and device with which the run began are unknown"],
    ),
    "nothing": (lambda f: None, []),
}


@pytest.mark.parametrize("what", GOES_ON)
def test_resume_of_a_usable_run_completes_and_reports_what_is_missing(tmp_path, killed, finished, capsys, what):
    folder = tmp_path / "run"
    shutil.copytree(killed, folder)
    damage, messages = GOES_ON[what]
    damage(folder)
    assert main(["--resume", str(folder)]) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if re.match(rf"{re.escape(str(folder))}\S*: ", line)]
    assert len(told) == len(messages), told
    assert all(any(re.search(message, line) for line in told) for message in messages), told
    assert text_of(folder, "results.csv").replace(str(killed.parent), "") == text_of(finished, "results.csv")
    config, record = (folder / "config.yaml").read_text(), json.loads((folder / "run.json").read_text())
    assert config == record["config"] or "config edited" in what
    assert len(record["software"]) == (2 if "other versions" in what else 1)


CONFIGS = {  # what is done to config.yaml: why that in run.json is used
    "cut after 0 %": (lambda file: cut(file, 0), "its end is missing"),
    "cut after 99 %": (lambda file: cut(file, len(file.read_bytes()) * 99 // 100), "its end is missing"),
    "without a key": (lambda file: replace(file, "seeds: 1\n", ""), "seeds is missing"),
    "unreadable": (lambda file: replace(file, "seeds: 1\n", "seeds: [1\n"), r"line \d+: .*"),
    "missing": (lambda file: file.unlink(), "No such file or directory"),
}


@pytest.mark.parametrize("what", CONFIGS)
def test_a_damaged_config_is_that_of_the_record(tmp_path, killed, what):
    whole = RunFolder.open(killed)
    damage, reason = CONFIGS[what]
    folder = RunFolder.open(shutil.copytree(killed, tmp_path / "run"))
    damage(folder.config)
    assert folder.read() == whole.read() and not whole.notes
    assert re.fullmatch(rf"config\.yaml is damaged \({reason}\): using the config in run\.json", *folder.notes)


COMPLETE = {
    "a digit of results": (
        lambda f: replace(f / "results.csv", "good,3,ok,0.", "good,3,ok,00."),
        r"results\.csv was changed after the run: rest",
    ),
    "a digit of curves": (
        lambda f: digit(f / "components.csv"),
        r"components\.csv was changed after the run: restore a copy of it",
    ),
    "summary cut": (lambda f: cut(f / "summary.json", 250), ""),
    "config edited": (
        lambda f: replace(f / "config.yaml", "learning_iterations: 8", "learning_iterations: 800"),
        r"config\.yaml was changed after the run \(learning_iterations: 8 -> 800\): these are results of the config",
    ),
    "config cut": (lambda f: cut(f / "config.yaml", 250), r"config\.yaml is damaged"),
    "nothing": (lambda f: None, r""),
}


@pytest.mark.parametrize("what", COMPLETE)
def test_complete_run_with_one_damaged_file_shows_the_same_table(tmp_path, finished, capsys, what):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    main(["--resume", str(folder)])
    table = capsys.readouterr().out.partition("steps: mean")[0]
    assert "good" in table
    damage, message = COMPLETE[what]
    damage(folder)
    before = contents(folder)
    assert main(["--resume", str(folder)]) == 0
    captured = capsys.readouterr()
    assert captured.out.partition("steps: mean")[0] == table
    told = [line for line in captured.err.splitlines() if line.startswith(f"{folder}: ")]
    assert len(told) == bool(message) and (not told or re.search(message, told[0])), told
    assert contents(folder) == before


@pytest.mark.parametrize("size, reason", [(250, "is damaged"), (None, "cannot be read")])
def test_complete_run_without_results_is_refused(tmp_path, finished, capsys, size, reason):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    if size is None:
        (folder / "results.csv").unlink()
    else:
        cut(folder / "results.csv", size)
    assert main(["--resume", str(folder)]) == 2
    told = capsys.readouterr().err
    assert f"results.csv {reason}" in told and "restore a copy" in told


GONE = {  # a value of task_source: what is said
    "isaacgymenvs:Ant": r"task_source isaacgymenvs:Ant: .* neither importable .*get it with: git clone .*; make it imp",
    "no_such_module:Pole": r"No module named 'no_such_module'; make it importable again, or set task_source in this",
    "/none/poles.py:Pole@/a.yaml": r"does not exist; move the task back to /none/poles\.py, or set task_source in this",
    "null": r"Cartpole cannot be built: no asset; restore the task's files, or begin a new run",
}


@pytest.mark.parametrize("address", GONE)
def test_all_that_open_a_run_whose_task_is_gone_name_config_and_remedy(
    tmp_path, finished, killed, monkeypatch, capsys, address
):
    monkeypatch.delenv("ISAACGYMENVS_PATH", raising=False)

    def fails(spec):
        raise ValueError(f"{spec.task.name} cannot be built: no asset")

    monkeypatch.setattr("envcoder_bench.run.spec.RunSpec.try_code", fails)
    for run_folder, more in ((finished, ["--seeds", "2"]), (killed, [])):
        folder = tmp_path / f"run{len(more)}"
        shutil.copytree(run_folder, folder)
        replace(folder / "config.yaml", "task_source: null", f"task_source: {address}")
        before = contents(folder)
        for command, *words in (
            (main, "--extend" if more else "--resume", folder, *more),
            (verbs.main, "report", folder, "--video", "1"),
        ):
            assert command([*map(str, words)]) == 2
            told = [line for line in capsys.readouterr().err.splitlines() if ": error: " in line]
            assert len(told) == 1 and re.search(rf"error: {folder}/config\.yaml: .*{GONE[address]}", told[0]), told
        if address != "no_such_module:Pole":
            continue
        # what the files say needs no task
        assert verbs.main(["report", str(folder)]) == verbs.main(["compare", str(folder), str(finished)]) == 0
        changed = {name for name, content in contents(folder).items() if before.get(name) != content}
        assert all(name.suffix in (".csv", ".log", ".html") for name in changed)


ODD = {
    "csv": [b"", b"\xff\xfe\x00", b"a,b\n1,2\n"],
    "json": [b"", b"\xff\xfe\x00", b"[1]", b"[" * 100_000],
    "yaml": [b"", b"\xff\xfe\x00", b"[1]", b"[" * 100_000],
}
COMMANDS = {
    "resume": lambda folder, good: main(["--resume", str(folder)]),
    "extend": lambda folder, good: main(["--extend", str(folder), "--learning_iterations", "1"]),  # fewer than it has
    "report": lambda folder, good: verbs.main(["report", str(folder), "--video", "0"]),
    "compare": lambda folder, good: verbs.main(["compare", str(folder), str(good)]),
}


@pytest.mark.parametrize("command", COMMANDS)  # each reads each file, and each content is read by one of them
def test_files_with_anything_in_them_end_in_a_message(tmp_path, finished, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    names = ["results.csv", "summary.json", "run.json", "config.yaml", "curves.csv", "components.csv", "points.csv"]
    for number, name in enumerate(names, [*COMMANDS].index(command)):
        contents = ODD[name.split(".")[1]]
        folder = tmp_path / name
        shutil.copytree(finished, folder, ignore=shutil.ignore_patterns("tensorboard", "states"))
        (folder / name).write_bytes(content := contents[number % len(contents)])
        code = COMMANDS[command](folder, finished)
        told = capsys.readouterr().err
        assert code in (0, 2) and "Traceback" not in told, (name, content[:9], told)


@pytest.mark.parametrize("content", [None, b"[]"])
def test_run_without_its_record_cannot_be_extended(tmp_path, finished, capsys, content):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    (folder / "run.json").unlink() if content is None else (folder / "run.json").write_bytes(content)
    before = contents(folder)
    assert main(["--extend", str(folder), "--seeds", "2"]) == 2
    assert "run.json is missing or damaged: restore a copy of it" in capsys.readouterr().err
    assert contents(folder) == before


SMALL = {
    **SETTINGS, "num_envs_per_candidate": 2, "learning_iterations": 2, "no_baselines": True, "checkpoint_minutes": 0,
    **TINY,
}  # fmt: skip


@pytest.fixture
def killed_at(monkeypatch):
    """Return a function that sets the write of a run's state at which Killed is raised, and the writes so far."""
    replace_file, count, writes = os.replace, [0], []

    def counted(source, target):
        is_state = re.search(r"run\.json|(checkpoint|jobs/.*)\.pth|states/", str(target))
        for moment in ("before", "after"):
            if is_state:
                writes.append(f"{moment} {Path(target).suffix}")
                if len(writes) == count[0]:
                    raise Killed
            if moment == "before":
                replace_file(source, target)

    def set_count(number):
        writes.clear()
        count[0] = number
        return writes

    monkeypatch.setattr("envcoder_bench.core.files.os.replace", counted)
    return set_count


def test_a_run_killed_at_any_write_of_its_state_resumes_to_the_same_result(tmp_path, killed_at):
    """Digests and files are written one after the other: killed before and after each of them."""
    candidate, whole = write_candidates(tmp_path, {"good": GOOD}), tmp_path / "whole"
    writes = killed_at(0)
    envcoder_bench.evaluate("Cartpole", candidate, output_dir=whole, **SMALL)
    # after each write of the first job and the first checkpoint, and of the last state and the end
    numbers = [6, 8, len(writes) - 2, len(writes)]
    assert {suffix for moment in writes for suffix in moment.split()[1:]} == {".json", ".pth", ".pt"}
    for number in numbers:
        folder = tmp_path / f"killed_{number}"
        killed_at(number)
        with pytest.raises(Killed):
            envcoder_bench.evaluate("Cartpole", candidate, output_dir=folder, **SMALL)
        killed_at(3)  # a second time, unless nothing is left to do
        with contextlib.suppress(Killed):
            envcoder_bench.resume(folder)
        killed_at(0)
        assert envcoder_bench.resume(folder).complete
        assert_same_tables(folder, whole, (*TABLES, "episodes.csv"))
        assert_same_policies(folder, whole, 1)
