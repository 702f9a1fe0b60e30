"""The search from end to end: two rounds with a model behind a server, replayed and resumed."""

import contextlib
import io
import json
import re
import signal
from unittest.mock import Mock

import pytest
from fake_llm import FakeLLM, answer, silent, status
from helpers import stopped_when

from envcoder_bench.cli import auto_shape
from envcoder_bench.core.shell import resume_command
from envcoder_bench.results.rows import read_results
from envcoder_bench.run.train import rungs
from envcoder_bench.run.train.session import Session
from envcoder_bench.search import launch
from envcoder_bench.search.archive import FAILED, FAILED_AT_LOAD, OK, read_archive
from envcoder_bench.search.llm import LLMProposer
from envcoder_bench.search.loop import Search
from envcoder_bench.search.providers.transcript import read_records

pytestmark = pytest.mark.slow

QUICK = [
    "--task", "Cartpole", "--task_description", "Balance the pole, be still", "--shaper_types", "compute_reward",
    "--num_iters", 2, "--shapers_per_iter", 3, "--num_envs_per_candidate", 4, "--learning_iterations", 3,
    "--final_seeds", 2, "--sim", "mujoco_cpu", "--device", "cpu", "concurrency=1", "final_episodes=4",
    "evaluation.num_envs=2", "evaluation.final_episodes=2", "evaluation.points=1", "checkpoint_minutes=0",
    "task.env.episodeLength=12", "train.params.config.horizon_length=4", "compile_shapers=false", "validated=2",
]  # fmt: skip


def code(body, idea="An idea."):
    return f'Something came to mind.\n\n```python\n"""{idea}"""\n\n\ndef compute_reward(state_dict):\n{body}\n```\n'


def cosine(factor):
    body = f"""    upright = torch.cos(state_dict["pole_angle"])
    still = -{factor} * state_dict["cart_vel"] ** 2
    return upright + still, {{"upright": upright, "still": still}}"""
    return code(body, f"Upright, with {factor} times the cart's speed squared.")


MISSPELT = code('    return torch.cos(state_dict["pole_angel"])')
NAN_LATER = code('    late = state_dict["progress_buf"] > 6\n    return torch.where(late, math.nan, 1.0)')
# in the order in which they are asked for: three samples, and then what fails once more
REPLIES = [
    *(cosine(0.1), MISSPELT, NAN_LATER),
    cosine(0.3),  # r1_01, mended
    *(cosine(0.1), "I would rather not.", MISSPELT),  # the first of them was there in the first round
    *(cosine(0.8), MISSPELT, cosine(0.2)),  # r2_00, something else; r2_02 fails again; r2_01, which had no code
]


def run(output, *words, expect=0):
    code = auto_shape.main([*map(str, words), "--output_dir", str(output)])
    assert code == expect, f"exit code {code}"
    return output


def served(server):
    return ["--llm", "openai:m", "--base_url", f"{server.root}/v1"]


def texts(folder):
    """What a search found; what it keeps of its own is the same to the byte whatever folder it is in."""
    runs = ["final/results.csv", *(f"rounds/{k}/run/results.csv" for k in (1, 2))]
    own = ["archive.json", "best.py", *(f"rounds/{k}/round.json" for k in (1, 2))]
    found = {name: (folder / name).read_text().replace(f"of the search {folder.name},", "") for name in own}
    return {**found, **{name: (folder / name).read_text().replace(str(folder), "") for name in runs}}


@pytest.fixture(scope="module", autouse=True)
def trusted():
    """Searches without the jail, which test_hostile_replies.py has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "UNTRUSTED", "untrusted=false")
        yield


@pytest.fixture(scope="module")
def served_search(tmp_path_factory):
    """A search of two rounds with a model, the requests that it sent, and what it printed."""
    with FakeLLM() as server, contextlib.redirect_stdout(io.StringIO()) as printed:
        server.script.extend(answer(text) for text in REPLIES)
        folder = run(tmp_path_factory.mktemp("served") / "search", *QUICK, *served(server))
    assert not server.script
    return folder, server.bodies, printed.getvalue()


def test_search_of_two_rounds_records_all_attempts(served_search):
    folder, *_ = served_search
    archive = read_archive(folder / "archive.json")
    ended = {attempt.name: attempt.status for attempt in archive.attempts}
    assert list(ended) == [f"r{number}_0{k}" for number in (1, 2) for k in (0, 1, 2)]
    assert {name for name, what in ended.items() if what != OK} == {"r1_02", "r2_02"}
    assert (ended["r1_02"], ended["r2_02"]) == (FAILED, FAILED_AT_LOAD)
    assert "r2_02.py:5: in compute_reward: raised KeyError: state_dict has no key 'pole_angel'" in str(
        archive.by_name["r2_02"].fault
    )
    assert "r1_02.py:6: in compute_reward: returned NaN" in str(archive.by_name["r1_02"].fault)
    for attempt in archive.attempts:
        if attempt.status == OK:
            assert attempt.fitness is not None and 0 <= attempt.fitness <= 1
            assert {name for point in attempt.points for name in point.components} == {
                "total reward",
                "upright",
                "still",
            }
            assert (
                folder / "rounds" / str(attempt.round) / "candidates" / f"{attempt.name}.py"
            ).read_text() == attempt.source
    # every round has a seed of its own, and trains the baselines and the best so far again
    assert set(archive.baselines["human"].by_seed) == {0, 1} and archive.episodes == 2
    best_of_first = _best_of_first(archive)
    assert {0, 1} <= set(best_of_first.by_seed)
    best = archive.best()
    head, source = (folder / "best.py").read_text()[: -len(best.source)], (folder / "best.py").read_text()
    assert source.endswith(best.source) and all(line.startswith("# ") for line in head.splitlines())
    for words in ("# task: Cartpole\n", f"# candidate: {best.name} of the search", "# fitness: ", "# expected: "):
        assert words in head
    assert "# final evaluation: " in head
    final = (folder / "final" / "results.csv").read_text().splitlines()[1:]
    names = ("human", "unshaped", "untrained", best.name)
    assert [line.split(",")[:2] for line in final] == [[name, seed] for name in names for seed in ("10005", "10006")]
    assert set(archive.untrained.by_seed) == {0, 1} and "untrained" in (folder / "report.html").read_text()


def _best_of_first(archive):
    return max((a for a in archive.of_round(1) if a.status == OK), key=lambda a: a.by_seed[0])


def test_prompts_contain_errors_and_earlier_attempts(served_search):
    folder, bodies, _ = served_search
    asked = [body["messages"][-1]["content"] for body in bodies]
    assert len({body["messages"][0]["content"] for body in bodies}) == 1  # one system prompt
    assert "Balance the pole, be still" in bodies[0]["messages"][0]["content"]
    assert asked[0] == asked[1] == asked[2] and "Nothing has been tried" in asked[0]
    assert "r1_01.py:5: in compute_reward: raised KeyError: state_dict has no key 'pole_angel'" in asked[3]
    assert 'return torch.cos(state_dict["pole_angel"])' in asked[3]
    second = asked[4]
    assert asked[9].startswith(second.strip()) and "The answer began:\n\nI would rather not." in asked[9]
    archive = read_archive(folder / "archive.json")
    assert "Round 2 of 2" in second and _best_of_first(archive).source.strip() in second
    assert "terms per step, with exploration noise: upright " in second and "\nunshaped: " in second
    assert "r2_00 is" not in second and "is the same as r1_00, so it is not trained" in asked[7]
    assert all(f"\n{name}" in asked[7] for name in ("r1_00: ", "r1_01: "))
    assert "r1_02 stopped in training: r1_02.py:6: in compute_reward: returned NaN" in second


def test_search_prints_its_rounds_repairs_and_best(served_search):
    printed = " ".join(served_search[2].split())  # lines are wrapped
    for words in (
        "round 2 of 2", "r1_01 repaired", "was: r1_01.py:5: in compute_reward: raised KeyError", "r2_02 failed",
        "best so far: ", "validation: the best ", "final evaluation: ", "tokens in and", "best.py", "this round took ",
        " left at this pace",
    ):  # fmt: skip
        assert words in printed, words


def test_transcript_of_another_task_is_refused(served_search, tmp_path, capsys):
    folder, *_ = served_search
    words = ["Ant" if word == "Cartpole" else word for word in QUICK]
    run(tmp_path / "again", *words, "--llm", f"replay:{folder / 'transcript.jsonl'}", expect=2)
    assert "is the transcript of another search: " in capsys.readouterr().err
    assert not (tmp_path / "again").exists()


@contextlib.contextmanager
def not_trained(monkeypatch):
    """A search is killed when the candidates of its round are checked."""
    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(Search, "_train", Mock(side_effect=SystemExit))
        yield


def reached(folder, moment):
    """Whether a search in this folder has come to a moment, to be stopped there; no request is in flight then."""
    curves = folder / "rounds" / "2" / "run" / "curves.csv"
    if moment == "training":
        return curves.exists() and b"\n2," in curves.read_bytes()
    return (folder / moment / "curves.csv").exists()


def test_repeatedly_stopped_replay_resumes_to_the_same_result(served_search, tmp_path, monkeypatch, capsys):
    folder, bodies, _ = served_search
    output = tmp_path / "search"
    words = [*QUICK, "--llm", f"replay:{folder}", "--output_dir", output]
    with not_trained(monkeypatch):
        auto_shape.main([*map(str, words)])
    assert (output / "rounds" / "1" / "round.json").exists()
    assert not (output / "archive.json").exists()
    # Ctrl-C in a round's training: the run saves where it is, and the command is this one, not that of the run
    capsys.readouterr()
    with stopped_when(lambda: reached(output, "training"), signal.SIGINT):
        assert auto_shape.main(["--resume", str(output)]) == 130
    told = "".join(capsys.readouterr())
    assert re.search(rf"auto.shape(\.py)? --resume {output}", told) and not re.search("eval.shapers", told)
    assert (output / "rounds" / "2" / "run" / "checkpoint.pth").exists()
    iterate = Session.iterate

    for moment in ("validation", "final"):

        def killed(session, moment=moment):
            iterate(session)
            if reached(output, moment):
                raise SystemExit

        with monkeypatch.context() as patch:
            patch.setattr(Session, "iterate", killed)
            with pytest.raises(SystemExit):
                auto_shape.main(["--resume", str(output)])
        assert not (output / moment / "summary.json").exists()
    assert auto_shape.main(["--resume", str(output)]) == 0
    requests = [record["hash"] for record in read_records(output / "transcript.jsonl")[0] if record["type"] == "reply"]
    assert len(requests) == len(set(requests)) == len(bodies)  # nothing was asked twice
    assert texts(output) == texts(folder)


def test_complete_search_is_shown_again(served_search, capsys):
    folder, *_ = served_search
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert auto_shape.main(["--resume", str(folder)]) == 0
    assert read_archive(folder / "archive.json").best().name in capsys.readouterr().out
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_budget_ends_the_search(tmp_path, capsys, server):
    server.input_tokens, server.output_tokens = 28_000, 500
    server.script.extend(answer(cosine(0.1 * 1.5**k)) for k in range(9))
    fitness = tmp_path / "mine.py"
    text = '"""How little the cart moves."""\n\n\ndef compute_fitness(cart_vel):\n    return 1 / (1.5 + cart_vel**2)\n'
    fitness.write_text(text)
    words = [*QUICK, "--shapers_per_iter", 1, "--final_seeds", 1, "--fitness", fitness, "--learning_iterations", 1]
    words += ["--max_tokens", 30_000, "--max_output_tokens", 1000, "--show_baseline", "no", *served(server)]
    folder = run(tmp_path / "search", *words)
    archive = read_archive(folder / "archive.json")
    assert len(archive.attempts) == len(server.bodies) == 1
    assert "no more rounds: the next request could exceed --max_tokens 30000" in capsys.readouterr().out
    # the model is told what is measured, and not how
    asked = "".join(message["content"] for body in server.bodies for message in body["messages"])
    assert "which is not shown to you" in asked and "0.005 * torch.abs(pole_vel)" not in asked
    assert "show_baseline: false" in (folder / "config.yaml").read_text()
    assert "How little the cart moves" in asked and "1.5" not in asked and "def compute_fitness" not in asked
    assert (folder / "final" / "fitness.py").read_text() == (folder / "fitness.py").read_text() == text
    fitness.unlink()
    assert auto_shape.main(["--resume", str(folder)]) == 0
    assert len(server.bodies) == 1
    assert "fitness: How little the cart moves" in " ".join(capsys.readouterr().out.split())
    _a_spent_budget_is_raised(folder, server, capsys)


def _a_spent_budget_is_raised(folder, server, capsys):
    first, best = (folder / "final" / "results.csv").read_text(), (folder / "best.py").read_text()
    for words, message in (
        (["--max_tokens", "30000"], "--max_tokens 30000: the search has 30000, which can only be raised"),
        (["--num_iters", "9"], "the search ended because the next request could exceed --max_tokens 30000"),
        (["--max_tokens", "0"], "can only be raised"),
        (["--llm", "openai:other", "--max_tokens", "10"], "can only be raised"),  # nor is the model changed
        (["--seeds", "2"], "--resume takes no other flag but --max_tokens"),
    ):
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        assert auto_shape.main(["--resume", str(folder), *words]) == 2
        assert message in capsys.readouterr().err
        assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert auto_shape.main(["--resume", str(folder), "--max_tokens", "900000"]) == 0  # one round more
    assert len(server.bodies) == len(read_archive(folder / "archive.json").attempts) == 2
    assert "no more rounds" not in capsys.readouterr().out and len(best) > 0
    assert (folder / "final_1" / "results.csv").read_text() == first
    assert {path.name for path in folder.glob("final*")} == {"final", "final_1"}
    # what comes after more rounds has seeds that nothing had before
    runs = [*folder.glob("final*"), *folder.glob("validation*"), *folder.glob("rounds/*/run")]
    seeds = [{row.seed for row in read_results(run / "results.csv")} for run in runs]
    assert len(runs) == 5 and sum(map(len, seeds)) == len(set.union(*seeds))


def test_evolve_starts_from_given_candidates_and_varies_the_terms_of_the_best(tmp_path, monkeypatch):
    text = '''"""Mine."""\n\n\ndef compute_reward(pole_angle, cart_vel):
    terms = {"upright": torch.cos(pole_angle), "still": -WEIGHT * cart_vel**2}
    return terms["upright"] + terms["still"], terms\n'''
    for k in range(3):
        (tmp_path / f"mine{k}.py").write_text(text.replace("WEIGHT", f"0.{k + 1}"))
    words = [
        *QUICK,
        "--learning_iterations",
        1,
        "--llm",
        "evolve",
        "--candidates",
        *sorted(tmp_path.glob("mine*.py")),
        "term_variants=2",
    ]
    words += ["--final_seeds", 1]
    folder, train = tmp_path / "search", Search._train

    def killed(search, round):
        if round.number == 2:
            raise SystemExit
        return train(search, round)

    with monkeypatch.context() as patch:
        patch.setattr(Search, "_train", killed)
        with pytest.raises(SystemExit):
            run(folder, *words, "--num_iters", 2)
    second = folder / "rounds" / "2" / "round.json"
    proposed = second.read_text()
    second.unlink()  # as if it was killed before
    assert auto_shape.main(["--resume", str(folder)]) == 0 and second.read_text() == proposed
    archive = read_archive(folder / "archive.json")
    assert [len(archive.of_round(number)) for number in (1, 2)] == [3, 3]
    assert archive.by_name["r1_00"].origin == "start: mine0"
    assert all(attempt.parents for attempt in archive.attempts[3:])
    variants = [a for a in archive.attempts if a.term]
    assert [(a.name, a.status, a.parents) for a in variants] == [(f"r2_0{k}", OK, variants[0].parents) for k in (1, 2)]
    assert not (folder / "transcript.jsonl").exists()
    assert (folder / "report.html").exists()


def test_search_resumes_after_ctrl_c_and_reports_if_all_candidates_fail(tmp_path, capsys, monkeypatch, server):
    server.script.extend(answer(MISSPELT) for _ in range(9))
    words = [*QUICK, "--repair", 0, "--shapers_per_iter", 1, *served(server)]
    with monkeypatch.context() as patch:
        patch.setattr(LLMProposer, "propose", Mock(side_effect=KeyboardInterrupt))
        folder = run(tmp_path / "search", *words, expect=130)
    assert f"stopped; resume with: {resume_command(folder, 'auto-shape')}" in capsys.readouterr().out
    assert auto_shape.main(["--resume", str(folder)]) == 1
    assert "no candidate could be trained" in capsys.readouterr().out
    assert not (folder / "best.py").exists()
    assert [a.status for a in read_archive(folder / "archive.json").attempts] == [FAILED_AT_LOAD] * 2


def test_refused_setting_is_given_again_on_resume(tmp_path, capsys, server, monkeypatch):
    server.script.extend([status(400, "'temperature' must be at most 2"), answer(cosine(0.1))])
    words = [*QUICK, "--num_iters", 1, "--shapers_per_iter", 1, "--final_seeds", 1, "--temperature", 3]
    folder = run(tmp_path / "search", *words, *served(server), expect=2)
    told = capsys.readouterr()
    assert f"lost, resume with another --temperature: {resume_command(folder, 'auto-shape')}\n" in told.err
    resumed = ["--resume", str(folder), "--temperature", "1.5"]
    for more, message in (
        (["--base_url", "http://me:secret-word@host/v1"], "--base_url http://...@host/v1: leave out user name and"),
        (["--llm", "evolve"], "--llm evolve sends no requests"),
        (["--llm", "gtp-4"], "--llm gtp-4: no such model"),
        (["--temperature", "-1"], "temperature must be a number of at least 0"),
    ):
        assert auto_shape.main([*resumed, *more]) == 2
        assert message in capsys.readouterr().err
    assert "temperature: 3" in (folder / "config.yaml").read_text()  # as it was, because each was refused
    with not_trained(monkeypatch):
        auto_shape.main([*resumed, "--llm", "openai:n"])
    assert [(body["model"], body["temperature"]) for body in server.bodies] == [("m", 3), ("n", 1.5)]


def test_unanswered_requests_stop_the_search_resumably(tmp_path, capsys, server, monkeypatch):
    server.script.extend([silent] * 7 + [answer(cosine(0.1))])
    words = [*QUICK, "--num_iters", 1, "--shapers_per_iter", 1, "--final_seeds", 1, "--reply_timeout", 0.5]
    folder = run(tmp_path / "search", *words, *served(server), expect=2)
    told = capsys.readouterr()
    assert told.err.startswith("auto-shape: error: no request was answered: ")
    assert "within 0.5 s (--reply_timeout) (tried 7 times); nothing is lost, resume with another --reply_t" in told.err
    assert told.err.endswith(f"{resume_command(folder, 'auto-shape')}\n")
    assert not (folder / "rounds" / "1" / "round.json").exists()  # it is asked anew
    with not_trained(monkeypatch):
        auto_shape.main(["--resume", str(folder), "--reply_timeout", "60"])
    assert (folder / "rounds" / "1" / "round.json").exists()
    assert "reply_timeout: 60" in (folder / "config.yaml").read_text() and len(server.bodies) == 8


def test_race_is_used_in_rounds_but_not_in_the_final_evaluation(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(rungs, "learned", lambda *_: True)
    words = [*QUICK, "--llm", "evolve", "--race", "race.rungs=[2]", "--shapers_per_iter", 5, "evaluation.points=3"]
    folder = run(tmp_path / "search", *words, "--num_iters", 1, "--final_seeds", 1)
    archive = read_archive(folder / "archive.json")
    stopped = [a for a in archive.attempts if a.stopped_at]
    # of five three go on
    assert [a.stopped_at for a in stopped] == [2, 2]
    assert archive.best() not in stopped
    assert "stopped at" not in (folder / "final/results.csv").read_text()
    final = json.loads((folder / "final/summary.json").read_text())
    assert not final.get("race")
    first, _, last = capsys.readouterr().err.rpartition("memory: about")  # the line with which each run begins
    assert "rung" in first and last and "rung" not in last
    page = (folder / "report.html").read_text()
    assert "stopped at 2" in page
