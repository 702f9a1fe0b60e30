"""When the seeds of a score are drawn, and what is noticed of changes in its folder; searches and runs are fakes."""

import os
from dataclasses import asdict, replace

import pytest

from envcoder_bench.core.errors import MachineError, Stopped, UserError
from envcoder_bench.core.files import write_atomic
from envcoder_bench.core.yaml_files import read_yaml, to_yaml
from envcoder_bench.run.config import find_task
from envcoder_bench.run.prepare.run_files import baseline_sources
from envcoder_bench.score import run
from envcoder_bench.score.folder import ScoreConfig, ScoreFolder
from envcoder_bench.score.protocol import TASKS, VERSION
from envcoder_bench.search.archive import Archive, Attempt, write_archive
from envcoder_bench.search.folder import Round, SearchFolder
from envcoder_bench.search.screen import View

ASKED = {"track": "reward", "budget": "one-shot", "base_url": None, "max_cost": None, "model": "evolve", "runs": 2}


def seen(folder):
    """All that somebody on this machine can read of a score: texts of files by name, and the environment."""
    files = {str(path.relative_to(folder.path)): path.read_text() for path in folder.path.rglob("*") if path.is_file()}
    return {**files, "environment": str(dict(os.environ))}


@pytest.fixture
def faked(tmp_path, monkeypatch):
    """A score of two tasks and the unseen ones. ``events`` has its searches and last runs, each with ``seen``."""
    config = ScoreConfig(**ASKED, tasks=("smoke", "Ant", "unseen"), protocol=VERSION)
    folder = ScoreFolder(tmp_path / "score")
    folder.path.mkdir()
    folder.config.write_text(to_yaml(asdict(config)))
    events = []

    def search(folder, config, task, number, view):
        events.append((f"search of {task.name}", seen(folder)))
        of_search = SearchFolder(folder.search(task, number))
        of_search.write_round(Round(1))
        write_archive(of_search.archive, Archive([Attempt("r1_00", 1, f"{task.name} {number}", fitness=1.0)]))
        return True

    def final(folder, config, task, notes, view):
        events.append((f"last run of {task.name}", notes.held_out))
        folder.final(task).mkdir(parents=True)
        write_atomic(folder.final(task) / "results.csv", task.name)
        return True

    monkeypatch.setattr(run, "_run_search", search)
    monkeypatch.setattr(run, "_run_final", final)
    monkeypatch.setattr(run, "read_task", lambda folder, config, task: run.TaskOutcome(task, [], [], [], None, {}))
    monkeypatch.setattr(run, "_before", lambda _: {})
    return folder, config, events


def play(folder, config):
    return run.run_score(folder, config, View(), lambda text: None)


def test_the_held_out_seeds_are_nowhere_until_the_last_search_has_ended(faked):
    folder, config, events = faked
    outcomes = play(folder, config)
    names = [name for name, _ in events]
    searches, finals = names[:12], names[12:]
    assert [name.partition(" of ")[0] for name in names] == ["search"] * 12 + ["last run"] * 6
    assert [f"last run of {outcome.task.name}" for outcome in outcomes] == finals
    notes = folder.read_notes()
    assert {held_out for _, held_out in events[12:]} == {notes.held_out}
    assert 2_000_000_000 <= notes.held_out < 3_000_000_000
    for _, texts in events[:12]:
        assert not any(str(notes.held_out) in text for text in texts.values())
    # an unseen task is nowhere until the searches of those before it have ended
    drawn = [f"Unseen{base}{seed}" for base, seed in notes.unseen.items()]
    assert [name.partition(" of ")[2] for name in searches[4::2]] == drawn
    for k, (_, texts) in enumerate(events[:12]):
        later = drawn[max(0, k // 2 - 1) :]
        assert not any(name in text or name in file for name in later for file, text in texts.items())


def test_a_resumed_score_keeps_what_was_drawn_and_repeats_nothing(faked, monkeypatch):
    folder, config, events = faked
    final = run._run_final
    monkeypatch.setattr(run, "_run_final", lambda *_: False)  # it is stopped
    assert play(folder, config) is None
    notes, done = folder.read_notes(), len(events)
    monkeypatch.setattr(run, "_run_final", final)
    assert len(play(*ScoreFolder.open(folder.path))) == 6
    assert all(name.startswith("last run") and seed == notes.held_out for name, seed in events[done:])
    assert folder.read_notes().unseen == notes.unseen


def test_given_seeds_are_used_and_named(tmp_path, faked):
    folder, config, _ = faked
    config = replace(config, tasks=("unseen",), held_out=2_000_000_007, unseen=3)
    play(folder, config)
    notes = folder.read_notes()
    assert notes.held_out == 2_000_000_007 and set(notes.unseen.values()) == {3}
    assert "held-out seeds that were given, not drawn" in config.changes
    asked = {**ASKED, "tasks": ("unseen",)}
    with pytest.raises(UserError, match=r"--held_out_seed 7: give one of 2000000000 to 2999999999"):
        run.begin(tmp_path / "low", **asked, held_out=7)
    agent = {**asked, "model": "m", "budget": "agent", "agent": "true"}
    with pytest.raises(UserError, match=r"--held_out_seed is not for --budget agent.*leave it out"):
        run.begin(tmp_path / "agent", **agent, held_out=2_000_000_007)
    assert not (tmp_path / "low").exists() and not (tmp_path / "agent").exists()


@pytest.mark.parametrize("file", ["archive.json", "rounds/1/round.json", "transcript.jsonl"])
def test_a_search_that_a_later_one_changes_ends_the_score(faked, monkeypatch, file):
    folder, config, events = faked
    search = run._run_search

    def tampering(folder, config, task, number, view):
        if task.name == "Ant":  # also what the folder says of it
            path = folder.search(TASKS["CartpoleSwingup"], 0) / file
            path.write_text(path.read_text().replace("1.0", "2.0") + " " if path.exists() else "{}")
            notes = folder.read_notes()
            folder.note(notes, folder.search(TASKS["CartpoleSwingup"], 0))
        return search(folder, config, task, number, view)

    monkeypatch.setattr(run, "_run_search", tampering)
    with pytest.raises(UserError, match=rf"{file} was changed after searches/CartpoleSwingup/0 had ended"):
        play(folder, config)
    assert not any(name.startswith("last run") for name, _ in events)


def test_what_is_written_in_the_place_of_a_later_search_or_run_does_not_count(faked, monkeypatch):
    folder, config, events = faked
    search, planted = run._run_search, ("searches/Ant/0", "agents/Ant/0", "final/Ant")

    def planting(folder, config, task, number, view):
        if (task.name, number) == ("CartpoleSwingup", 0):
            for name in planted:
                (folder.path / name).mkdir(parents=True)
                (folder.path / name / "planted").write_text("mine")
            folder.notes.write_text('{"held_out": 2000000001}')
        return search(folder, config, task, number, view)

    monkeypatch.setattr(run, "_run_search", planting)
    play(folder, replace(config, tasks=("smoke", "Ant")))
    assert not [path for path in folder.path.rglob("planted")]
    assert folder.read_notes().held_out != 2_000_000_001 and len(events) == 6


def test_a_last_run_that_was_changed_ends_the_score(faked):
    folder, config, _ = faked
    play(folder, config)
    (folder.final(TASKS["Ant"]) / "results.csv").write_text("better")
    with pytest.raises(UserError, match=r"results.csv was changed after final/Ant had ended"):
        play(*ScoreFolder.open(folder.path))


@pytest.mark.slow
def test_a_higher_limit_draws_other_held_out_seeds_for_searches_that_it_has_ended(faked):
    folder, config, events = faked
    config = replace(config, max_cost=1.0, tasks=("smoke", "Ant"))
    play(folder, config)
    before = folder.read_notes()
    assert run.raise_cost(folder, config, 2.0).max_cost == 2.0
    assert folder.read_notes() == before  # no search had reached it
    search = SearchFolder(folder.search(TASKS["Ant"], 1))
    search.write_round(Round(1, stopped="the next request could exceed --max_cost 1, so the search stops"))
    folder.note(before, search.path)
    run.raise_cost(folder, config, 3.0)
    after = folder.read_notes()
    assert not after.held_out and set(after.ended) == {
        "searches/CartpoleSwingup/0",
        "searches/CartpoleSwingup/1",
        "searches/Ant/0",
    }
    assert (folder.path / "final_1" / "Ant" / "results.csv").is_file()
    events.clear()
    play(*ScoreFolder.open(folder.path))
    assert [name for name, _ in events] == ["search of Ant", "last run of CartpoleSwingup", "last run of Ant"]
    assert folder.read_notes().held_out != before.held_out


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["rename of final", "write of notes", "write of config"])
def test_a_raise_of_the_limit_that_is_killed_can_be_repeated(faked, monkeypatch, killed):
    folder, config, events = faked
    config = replace(config, max_cost=1.0, tasks=("smoke", "Ant"))
    play(folder, config)
    before, search = folder.read_notes(), SearchFolder(folder.search(TASKS["Ant"], 1))
    search.write_round(Round(1, stopped="the next request could exceed --max_cost 1, so the search stops"))
    folder.note(before, search.path)

    def kill(*_):
        raise KeyboardInterrupt

    place = {
        "rename of final": (type(folder.path), "rename"),
        "write of notes": (ScoreFolder, "write_notes"),
        "write of config": (run, "write_atomic"),
    }
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(*place[killed], kill)
        run.raise_cost(folder, config, 2.0)
    folder.refuse_changed(folder.read_notes())  # the score can also resume as it is
    run.raise_cost(folder, config, 2.0)
    assert (folder.path / "final_1" / "Ant" / "results.csv").is_file() and not (folder.path / "final").exists()
    events.clear()
    play(*ScoreFolder.open(folder.path))
    assert [name for name, _ in events] == ["search of Ant", "last run of CartpoleSwingup", "last run of Ant"]
    assert folder.read_notes().held_out != before.held_out


@pytest.mark.parametrize("key, known", [("track", "reward, all"), ("budget", "one-shot, search, agent")])
def test_an_unknown_name_in_the_folder_is_one_line(faked, key, known):
    folder, _, _ = faked
    folder.config.write_text(to_yaml({**read_yaml(folder.config), key: "Nope"}))
    with pytest.raises(UserError, match=rf"config.yaml: {key} Nope is unknown; there are {known}; restore a copy"):
        ScoreFolder.open(folder.path)
    folder.notes.write_text('{"unseen": {"Nope": 3}}')
    with pytest.raises(UserError, match=r"notes.json: unseen Nope is unknown; there are Ant, .*; restore a copy"):
        folder.read_notes()


def test_an_older_score_is_refused(faked):
    folder, _, _ = faked
    content = dict(read_yaml(folder.config))
    for protocol, shown in (("0.1", "0.1"), (None, "0.3 or older")):
        content["protocol"] = protocol
        if protocol is None:
            del content["protocol"]
        folder.config.write_text(to_yaml(content))
        with pytest.raises(UserError, match=rf"of the protocol {shown}; use .* this one has {VERSION}$"):
            ScoreFolder.open(folder.path)
    folder.config.write_text(to_yaml({**content, "protocol": VERSION}))
    folder.notes.write_text('{"held_out": "x"')
    with pytest.raises(UserError, match=r"notes.json is damaged .*: restore a copy"):
        ScoreFolder.open(folder.path)[0].read_notes()


def test_errors_and_stops_say_how_the_score_is_resumed(faked):
    folder, _, _ = faked
    of_search = "no answer; nothing is lost, resume with another --llm: auto-shape --resume x"
    for error in (UserError(of_search), MachineError("disk is full", folder.path)):
        with pytest.raises(UserError, match=rf"; nothing is lost, resume with: .* {folder.path}$"), run.at_work(folder):
            raise error
    with pytest.raises(UserError, match=r"^bad$"), run.at_work(folder):
        raise UserError("bad")
    with pytest.raises(Stopped, match="score-model --resume"), run.at_work(folder):
        raise KeyboardInterrupt
    with run.at_work(folder), pytest.raises(UserError, match="another process"), run.at_work(folder):
        pass


def test_copies_and_near_copies_of_a_reference_do_not_win(tmp_path, faked):
    folder, config, _ = faked
    task = TASKS["AnymalTurn"]
    (reference,) = [path.read_text() for path in task.shipped_references]
    near = reference.replace("1.0 *", "1.1 *") if "1.0 *" in reference else f"{reference}\n# the same\n"
    other = "def compute_reward(root_states):\n    return root_states[:, 12]\n"
    texts = {"r1_00": reference, "r1_01": near, "r1_02": other}
    search = SearchFolder(folder.search(task, 0))
    attempts = [
        Attempt(name, 1, text, fitness=9.0 - k, by_seed={1: 9.0 - k}) for k, (name, text) in enumerate(texts.items())
    ]
    baselines = {
        source.name: Attempt(source.name, 0, source.source) for source in baseline_sources(find_task("Anymal"))
    }
    search.path.mkdir(parents=True)
    write_archive(search.archive, Archive(attempts, baselines))
    search.write_round(Round(1))
    found = run.read_search(folder, config, task, 0)
    assert found.winner.name == found.first.name == "r1_02" and found.copied == ["r1_00", "r1_01"]
    assert run.read_search(folder, replace(config, track="all"), task, 0).winner.name == "r1_02"
