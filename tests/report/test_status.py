"""The page of a run in training: what it says, when it is written, and how it ends."""

import re

import pytest

from envcoder_bench.cli.console import Console
from envcoder_bench.report.page import status
from envcoder_bench.report.page.status import STATUS, Status, StatusPage, render_status
from envcoder_bench.results.rows import Result, write_results
from envcoder_bench.shaping.contract import Fault


def test_page_shows_progress_and_candidates_and_loads_itself_again():
    rows = [("<script>", 0.9), ("human", 0.5)]
    page = render_status("run", Status("in training", 1200, 2000, ["25k env-steps/s", "0:05 left"]), rows)
    assert '<meta http-equiv="refresh" content="5">' in page and '<progress max="2000" value="1200">' in page
    assert "iteration 1,200 of 2,000" in page and "25k env-steps/s" in page and "1 candidate and 1 baseline" in page
    assert "&lt;script&gt;" in page and "<script" not in page and "human (baseline)" in page
    assert re.findall(r'class="number">([\d.]+)<', page) == ["0.900", "0.500"]
    assert "episode 3 of 8" in render_status("grid", Status("evaluating", 3, 8, unit="episode"), [])
    empty = render_status("run", Status("in training"), [])
    assert "<progress" not in empty and "So far" not in empty


def test_last_version_opens_the_report_or_stays():
    page = render_status("run", Status("complete", link="report.html", ended=True), [])
    assert 'content="0; url=report.html"' in page and 'href="report.html"' in page
    stopped = render_status("run", Status("stopped", ended=True), [])
    assert "refresh" not in stopped and "loads itself" not in stopped


def test_page_is_written_every_few_seconds(tmp_path):
    now = [100.0]
    page, asked = StatusPage(tmp_path, lambda: now[0]), []

    def current():
        asked.append(now[0])
        return Status("in training", len(asked), 9)

    for now[0] in (100.0, 101.0, 104.9, 105.0, 106.0, 112.0):
        page.update(current)
    assert asked == [100.0, 105.0, 112.0] and "iteration 3 of 9" in (tmp_path / STATUS).read_text()


def test_fault_of_the_disk_ends_the_page_and_not_the_run(tmp_path):
    page = StatusPage(tmp_path / "gone")
    page.update(lambda: Status("in training"))
    page.update(lambda: pytest.fail("it is not tried again"))


def test_page_has_the_means_of_the_last_evaluation(tmp_path):
    rows = [
        Result(
            name,
            seed,
            "ok",
            fitness + seed,
            0.0,
            1.0,
            episodes=8,
            episode_length=50.0,
            shaped_return=1.0,
            env_steps=100,
        )
        for name, fitness in (("a", 0.1), ("b", 0.3))
        for seed in (0, 1)
    ]
    write_results(tmp_path / "results.csv", [*rows, Result("bad", 0, "failed", fault=Fault("no"))])
    assert status.latest(tmp_path) == [("b", pytest.approx(0.8)), ("a", pytest.approx(0.6))]
    (tmp_path / "results.csv").write_text("torn")
    assert status.latest(tmp_path) == []


def test_page_of_a_searchs_runs_is_in_the_folder_of_the_search(tmp_path):
    run = tmp_path / "rounds" / "1" / "run"
    run.mkdir(parents=True)
    (tmp_path / "config.yaml").write_text("llm: evolve\n")
    (run / "config.yaml").write_text("candidates: []\n")
    console = Console()
    console.run_began(run)
    assert "in training" in (tmp_path / STATUS).read_text() and not (run / STATUS).exists()
    console.wave_began(2, 3, 0, 10)
    console.iteration_done(1, 100, None)
    (tmp_path / "report.html").touch()
    console.end_page("complete", "report.html")
    assert "url=report.html" in (tmp_path / STATUS).read_text()
    with pytest.raises(KeyboardInterrupt), console.ending_page():
        raise KeyboardInterrupt
    assert "ended; see run.log" in (tmp_path / STATUS).read_text()
    alone = Console(with_page=False)
    alone.run_began(run)
    alone.end_page("complete")
    assert not (run / STATUS).exists()
