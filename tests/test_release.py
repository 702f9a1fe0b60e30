"""What a release shows on PyPI, and how scripts/follow_pages.py reads the pages."""

import importlib
import re
import sys
import tomllib
import zipfile
from types import SimpleNamespace

import pytest
from doc_pages import ROOT, text_of

sys.path.append(str(ROOT / "scripts"))

import follow_pages
import release

URL = "https://example.org/repository"
PROJECTS = {name: tomllib.loads((ROOT / name / "pyproject.toml").read_text()) for name in release.FOLDERS}


@pytest.mark.parametrize("folder", release.FOLDERS)
def test_links_of_readmes_are_absolute(folder):
    text = (ROOT / folder / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)\s]+)\)", release.absolute_links(text, folder, URL))
    assert links and all(link.startswith(("https://", "#")) for link in links)
    for kind, path in re.findall(rf"{URL}/(blob|raw)/main/([^)\s#]+)", " ".join(f"{link} " for link in links)):
        assert (ROOT / path).exists() and kind == ("raw" if path.endswith((".gif", ".svg", ".png")) else "blob")
    bare = release.absolute_links(text, folder, "")
    assert all(link.startswith("https://") for link in re.findall(r"\]\(([^)\s]+)\)", bare))


def test_links_keep_their_anchors_and_words():
    text = "[a](docs/x.md#y), [b](https://b.org), [c](#d), ![e](f.png)"
    assert release.absolute_links(text, "packages/p", URL) == (
        f"[a]({URL}/blob/main/packages/p/docs/x.md#y), [b](https://b.org), [c](#d),"
        f" ![e]({URL}/raw/main/packages/p/f.png)"
    )
    assert release.absolute_links("[a](x.md) ![e](f.png)[b](https://b.org)", ".", "") == "a [b](https://b.org)"
    assert tomllib.loads(release.urls(URL))["project"]["urls"]["Repository"] == URL and release.urls("") == ""


def test_distributions_have_what_pypi_shows_and_agree():
    for project in (each["project"] for each in PROJECTS.values()):
        assert {"authors", "keywords", "classifiers", "license", "description", "readme"} <= set(project)
        assert project["authors"][0]["name"] in text_of("CITATION.cff")
        assert [need for need in project["dependencies"] if need.startswith("torch")] == ["torch>=2.3,<2.15"]
    # each is uploaded after those that it needs
    names = [each["project"]["name"] for each in PROJECTS.values()]
    for k, project in enumerate(PROJECTS.values()):
        needed = {re.split(r"[=<>~]", need)[0] for need in project["project"]["dependencies"]}
        assert not needed & set(names[k:])


@pytest.mark.parametrize("folder", ["packages/mujoco_batches", "."])
def test_wheel_that_lacks_a_file_of_any_kind_is_named(folder, tmp_path, monkeypatch):
    name = release._distribution(folder)
    files = ["README.md", "__init__.py", "page.css", "tests/test_a.py"]
    if folder == ".":
        files = [f"{name}/__init__.py", f"{name}/page.css", "cfg/config.yaml"]
    monkeypatch.setattr(release.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout="\n".join([*files, ""])))
    packed = [f"{name}/__init__.py", f"{name}/page.css", *([f"{name}/cfg/config.yaml"] if folder == "." else [])]
    there = importlib.import_module(name).__version__
    for version, inside in (("0.0.1", []), (there, [*packed, f"{name}-{there}.dist-info/METADATA"])):
        with zipfile.ZipFile(tmp_path / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
            for file in inside:
                wheel.writestr(file, "")
    assert release.wheel_faults(folder, tmp_path) == []
    with zipfile.ZipFile(tmp_path / f"{name}-{there}-py3-none-any.whl", "w") as wheel:
        for file in [*packed[:1], *packed[2:], f"{name}/more.py"]:
            wheel.writestr(file, "")
    told = [fault.partition(" ")[2] for fault in release.wheel_faults(folder, tmp_path)]
    assert told == [f"lacks {name}/page.css", f"has {name}/more.py"]


def test_steps_of_a_page():
    page = (
        "Now save this as\n`mine/a.py`:\n\n```python\nx = 1\n```\n\n```python\nshown = 1\n```\n"
        "\n<!-- needs a robot -->\n```bash\nstand\n```\n\n"
        "```bash\nrun a\\\n    b\nlist\n```\n\n```text\nall\n```\n"
    )
    assert [tuple(step) for step in follow_pages.steps(page)] == [
        ("save", "x = 1\n", "mine/a.py"), ("run", "run a b", ""), ("run", "list", ""), ("output", "all\n", ""),
    ]  # fmt: skip


TABLE = """
#  candidate            fitness               vs human     new seeds  steps  status
-----------------------------------------------------------------------------------
1  gentle               0.975 [0.739, 1.000]  +0.5 ± 0.4!      0.970    488  ok
2  centre               0.759 [0.526, 0.905]  +0.4 ± 0.3!      0.731    499  ok
3  unshaped (baseline)  0.480 ± 0.100         -0.0 ± 0.4       0.500    471  ok
"""


def test_verdicts_do_not_depend_on_numbers():
    verdicts = follow_pages.verdicts
    sure = "gentle is the best with a probability of 95 %\n"
    tie = "gentle is first; 1 candidate (unshaped) may be the best, too\n"
    assert verdicts(TABLE + sure) == {"gentle!", "best: gentle"}
    assert verdicts(TABLE + tie) == verdicts(TABLE + tie.replace("gentle", "other")) > {"best: undecided"}
    assert verdicts(TABLE.replace("0.4!", "0.4")) == {"gentle"}
    assert verdicts(TABLE.replace("0.3!", "0.3")) == verdicts(TABLE) == {"gentle!"}
    assert verdicts("a  0.25 [1, 2.5]\n----\n...\n") == verdicts("a  -1e-07 [3, 4]\n") == {"a # [# #]"}
