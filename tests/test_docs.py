"""The documentation matches the code, and its links are valid."""

import importlib.util
import re
from pathlib import Path

import pytest

import envcoder_bench.sim.mujoco_cpu  # noqa: F401  (importing mujoco for the first time starts a process)
from envcoder_bench.tasks import registry

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "benchmarks").glob("*.md")])]


def make_docs():
    spec = importlib.util.spec_from_file_location("make_docs", ROOT / "scripts" / "make_docs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def anchors(page):
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.slow
def test_tasks_page_matches_the_script():
    script = make_docs()
    assert set(script.TASKS) == set(registry._SHIPPED)
    page = script.tasks_page()
    assert (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8") == page, "run python scripts/make_docs.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_links_have_existing_targets(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link
