"""``--json``: every command prints one document of the schema, and messages and progress as JSON lines on stderr."""

import json
import math
import sys
from pathlib import Path

import pytest
from tqdm import tqdm

from envcoder_bench.__main__ import main
from envcoder_bench.cli import auto_shape, eval_policies, eval_shapers
from envcoder_bench.cli.command_line import command
from envcoder_bench.cli.console import Console
from envcoder_bench.cli.json_output import put, show
from envcoder_bench.cli.verbs import VERBS
from envcoder_bench.core.errors import Stopped, UserError
from envcoder_bench.report.progress import Progress
from envcoder_bench.results.pairs import Pair
from envcoder_bench.results.ranking import Ranked
from envcoder_bench.serve import documents
from envcoder_bench.shaping.contract import CandidateError, Fault

LISTED = documents.Runs(runs=[documents.ListedRun(Path("r"), "Cartpole", "", "a", math.nan, "complete")])


def answer(run, capsys, words=("--json",), code=0):
    """Run a command; return its document, which is all of stdout, and the events on stderr."""
    assert command("test", run, list(words)) == code
    out, err = capsys.readouterr()
    (line,) = out.splitlines()
    return json.loads(line), [json.loads(line) for line in err.splitlines()]


def test_one_document_on_stdout_and_all_else_as_events(capsys):
    def run(words):
        print("a table\n\nof two lines")
        print("note", file=sys.stderr)
        tqdm.write("above a bar", file=sys.stderr)
        show(lambda: LISTED, lambda: pytest.fail("a text is made"))
        print("and the end", end="")
        return 0

    document, events = answer(run, capsys)
    assert document["kind"] == "runs" and document["runs"][0]["fitness"] is None  # not NaN, which JSON lacks
    texts = ["a table", "of two lines", "note", "above a bar", "and the end"]
    assert [event["text"] for event in events] == texts and {event["event"] for event in events} == {"message"}


def test_without_the_flag_the_text_is_printed(capsys):
    def run(words):
        put(lambda: pytest.fail("a document is made"))
        show(lambda: pytest.fail("a document is made"), lambda: "text\n")
        return 0

    assert command("test", run, []) == 0 and capsys.readouterr().out == "text\n"


def test_progress_is_an_event_with_numbers(capsys):
    def run(words):
        now = iter(range(0, 1000, 20))
        progress = Progress(3, clock=lambda: next(now), prefix="wave 1 of 2, iteration")
        for k in (1, 2):
            progress.update(k, 100 * k, ("a", math.nan if k == 1 else 0.5))
        put(lambda: LISTED)
        return 0

    *_, last = answer(run, capsys)[1]
    assert last == {
        **{"event": "progress", "text": "wave 1 of 2, iteration", "done": 2, "total": 3},
        **{"env_steps_per_second": 5, "seconds_left": 20, "best": "a", "fitness": 0.5},
    }


@pytest.mark.parametrize(
    "error, code, wanted",
    [
        (UserError("no task", advice="see --help"), 2, {"message": "no task; see --help", "advice": "see --help"}),
        (UserError("bad key", file=Path("a.yaml")), 2, {"file": "a.yaml", "line": None}),
        (KeyboardInterrupt("stopped at 3"), 130, {"message": "stopped at 3"}),
        (Stopped("stopped", Path("runs/x")), 130, {"file": "runs/x"}),
        (MemoryError(), 2, {"message": "out of memory; give fewer environments"}),
    ],
)
def test_errors_are_documents_with_the_exit_code(error, code, wanted, capsys):
    def run(words):
        put(lambda: LISTED)
        raise error

    document, _ = answer(run, capsys, code=code)
    assert document.items() >= {"kind": "error", "exit_code": code, **wanted}.items()


def test_an_error_has_the_place_and_the_advice_of_its_fault(capsys):
    def run(words):
        try:
            raise CandidateError("has no x", "a.py", 3, "compute_reward", remedy="write x")
        except CandidateError as error:
            raise UserError(f"candidate a: {error}") from error

    document, _ = answer(run, capsys, code=2)
    place = {"file": "a.py", "line": 3, "function": "compute_reward", "advice": "write x"}
    assert document.items() >= place.items()


@pytest.mark.parametrize("run", [main, eval_shapers.main, auto_shape.main, eval_policies.main])
def test_a_command_line_that_is_wrong_is_an_error_document(run, capsys):
    assert run(["--json", "--nothing"]) == 2
    assert json.loads(capsys.readouterr().out)["kind"] == "error"


def test_a_candidate_that_does_not_parse_is_an_error_with_its_line(capsys, tmp_path):
    (tmp_path / "bad.py").write_text("x = 1\ndef f(:\n")
    assert eval_shapers.main(["--task", "Cartpole", "--candidates", str(tmp_path / "bad.py"), "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["line"] == 2 and document["file"].endswith("bad.py")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_the_flag(verb):
    assert any("--json" in action.option_strings for action in VERBS[verb].build_parser()._actions)


def test_stress_is_part_of_the_ranking(capsys):
    def run(words):
        values = dict(folder=Path("r"), complete=True, stopped_at="", fitness_meaning="", best="")
        put(lambda: documents.Ranking(**values, ranking=[Ranked(1, "a", "ok", faults=(Fault("x", "a.py", 2),))]))
        lists = dict(settings={}, ranking=[{"policy": "a"}], commands=(), sentences=(), missing=())
        put(lambda: documents.Stressed(folder=Path("r"), **lists, page=None))
        return 0

    document, _ = answer(run, capsys)
    assert document["kind"] == "ranking" and document["stress"]["ranking"] == [{"policy": "a"}]
    assert document["ranking"][0]["faults"][0]["line"] == 2


def test_documents_fulfil_their_schema():
    """Each document's fields are those of the schema, and numbers may be null."""
    definitions = documents.schema()["$defs"]
    pair = documents.compared_pair(Pair("a", "b", 0.1, seeds=2, reason="why"), Path("r"), {"fitness": "0.1"})
    for document in (pair, LISTED, documents.Error(message="x"), documents.Written(files={"page": Path("p")})):
        content = json.loads(document.as_json())
        assert set(content) == set(definitions[type(document).__name__]["properties"])
    assert json.loads(pair.as_json())["compared"]["p"] is None
    assert definitions["Verdict"]["properties"]["p"]["type"] == ["number", "null"]
    assert len({document.__dataclass_fields__["kind"].default for document in documents.DOCUMENTS}) == len(
        documents.DOCUMENTS
    )


def test_an_isolated_run_goes_on_with_the_flag(monkeypatch, tmp_path):
    """A wave of an isolated run is a process that replaces the one before."""
    from envcoder_bench.cli import console

    class Replaced(Exception):
        pass

    def execv(program, words):
        raise Replaced(words)

    class Result:
        complete, stopped_by, folder, rows = False, console.NEXT_PROCESS, tmp_path, ()

    monkeypatch.setattr(console.os, "execv", execv)
    monkeypatch.setenv("PYTHONPATH", "")  # restored at the end
    for flags in ([], ["--json"]):
        with pytest.raises(Replaced) as replaced:
            command("test", lambda words: console.finish(Result()), flags)  # pyright: ignore
        assert replaced.value.args[0][-1 if flags else -2] == (flags or ["--resume"])[0]


def test_the_console_of_a_run_writes_events(capsys):
    def run(words):
        console = Console(names_folder=False)
        console.wave_began(1, 1, 0, 1)
        console.iteration_done(1, 64, ("a", 0.5))
        console.wave_ended()
        put(lambda: LISTED)
        return 0

    *_, last = answer(run, capsys)[1]
    assert (last["event"], last["done"], last["best"]) == ("progress", 1, "a")
