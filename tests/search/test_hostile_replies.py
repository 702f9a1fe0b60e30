"""No reply of a model is believed or obeyed: a search whose candidates have hostile texts."""

import pytest
from fake_llm import answer
from helpers import CARTPOLE_QUICK
from hostile import ALL, PLAIN, ROW, escapes, false_rows
from page_fakes import HtmlPage

from envcoder_bench.cli import auto_shape, console
from envcoder_bench.jail import confine
from envcoder_bench.search.archive import read_archive

SMALL = [
    *(*CARTPOLE_QUICK, "--num_envs_per_candidate", "2", "--learning_iterations", "1"),
    "train.params.config.horizon_length=4",
    "task.env.episodeLength=12",
]


def reply(text):
    return f"An idea.\x1b[2J\n{ROW}\n\n```python\n{text}\n```\n"


@pytest.mark.slow
@pytest.mark.skipif(bool(confine.supported()), reason="no jail on this machine")
def test_search_believes_and_obeys_no_reply(tmp_path, capsys, monkeypatch, server):
    monkeypatch.setattr(console, "default_videos", lambda: 0)
    texts = [*ALL.values(), f"# {PLAIN}"]
    words = [
        *SMALL, "--task_description", "Balance", "--num_iters", "1", "--shapers_per_iter", str(len(texts)),
        "--final_seeds", "1", "concurrency=1", "final_episodes=4",
    ]  # fmt: skip
    server.script.extend([answer(reply(text)) for text in texts] * 6)
    asked = ["--llm", "openai:m", "--base_url", f"{server.root}/v1"]
    folder = tmp_path / "search"
    code = auto_shape.main([*words, *asked, "--output_dir", str(folder)])
    told = capsys.readouterr()
    assert code == 0, told.err
    for text in told:
        assert not escapes(text) and not false_rows(text)
    for file in [*folder.rglob("report.html"), *folder.rglob("run.log"), *folder.rglob("results.csv")]:
        assert not escapes(file.read_text(encoding="utf-8")), file
    assert any(attempt.fitness is not None for attempt in read_archive(folder / "archive.json").attempts)
    assert len(HtmlPage((folder / "report.html").read_text(encoding="utf-8")).scripts) == 2
