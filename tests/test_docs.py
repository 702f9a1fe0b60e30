"""The documentation matches the code, its links are valid, and its commands exist."""

import importlib.util
import re
from importlib import import_module

import pytest
from doc_pages import ROOT, command_lines, shell_lines, text_of

import envcoder_bench.sim.mujoco_cpu  # (importing mujoco for the first time starts a process)
from envcoder_bench.cli.verbs import COMMANDS, VERBS

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
RESULTS = sorted((ROOT / "benchmarks").glob("*.md"))
BUILDERS = {
    **{name: import_module(f"envcoder_bench.cli.{name.replace('-', '_')}").build_parser for name in COMMANDS},
    **{f"envcoder-bench {name}": verb.build_parser for name, verb in VERBS.items()},
}


def name(page):
    return page.relative_to(ROOT).as_posix()


def make_docs():
    spec = importlib.util.spec_from_file_location("make_docs", ROOT / "scripts" / "make_docs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def anchors(page):
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.slow
def test_generated_pages_match_the_script():
    pages = make_docs().pages()
    for path, text in pages.items():
        assert path.read_text(encoding="utf-8") == text, f"{name(path)}: run python scripts/make_docs.py"
        assert "generated" in text[:300] or path.suffix == ".json"
    assert set((ROOT / "docs" / "tasks").iterdir()) == {path for path in pages if path.parent.name == "tasks"}


@pytest.mark.parametrize("page", [*PAGES, *RESULTS], ids=name)
def test_links_have_existing_targets(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_site_shows_the_whole_page(page):
    """A <word> outside code would be an element of HTML, and a title that begins with a digit breaks the contents."""
    text = re.sub(r"```.*?```|^    .*?$|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert not re.findall(r"<\w+[^>]*>", text)
    assert "CHANGELOG" in page.name or not re.findall(r"^#+ \d.*", text, flags=re.MULTILINE)


@pytest.mark.parametrize("page", ["CONTRIBUTING", "docs/architecture", "docs/eval_policies", "docs/isaacgym_reference"])
def test_files_and_names_of_the_code_exist(page):
    files = [*ROOT.glob("envcoder_bench/**/*.py"), *ROOT.glob("packages/**/*.py"), *ROOT.glob("tests/**/*.py")]
    text = (ROOT / f"{page}.md").read_text(encoding="utf-8")
    for file, symbol in re.findall(r"`((?:\w+/)*\w+\.py)(?:: ([\w.]+))?`", text):
        code = [path.read_text(encoding="utf-8") for path in files if f"/{path.relative_to(ROOT)}".endswith(f"/{file}")]
        assert code or file == "train.py", file  # of IsaacGymEnvs
        last = symbol.split(".")[-1]
        assert not symbol or any(re.search(rf"^\s*((def|class) )?{last}\b", x, re.MULTILINE) for x in code), symbol


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_page_is_short(page):
    assert len(page.read_text(encoding="utf-8").split()) <= (750 if page.name == "README.md" else 3000)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_of_the_page_have_flags_that_exist(page):
    for line in command_lines(page.read_text(encoding="utf-8")):
        words = [word for word in line if word != "..."]
        count = 2 if words[0] == "envcoder-bench" else 1
        parser = BUILDERS[" ".join(words[:count])]()
        has_overrides = any(action.dest == "overrides" for action in parser._actions)
        (parser.parse if has_overrides else parser.parse_args)(words[count:])


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_shell_lines_are_run_by_a_test_or_marked(page):
    targets = re.findall(r"^(\w[\w-]*):", text_of("Makefile"), flags=re.MULTILINE)
    for line in shell_lines(text_of(page)):
        words = line.split("#")[0].split()
        if words[0] == "make":
            assert words[1] in targets
        else:  # test_tutorial.py runs all lines of these commands, and make release installs
            assert words[0] in ("eval-shapers", "envcoder-bench") or words[:2] == ["pip", "install"], line


def test_every_page_is_in_the_navigation_of_the_site():
    listed = set(re.findall(r"[\w/-]+\.md", text_of("mkdocs.yml").partition("\nnav:")[2]))
    assert listed == {path.relative_to(ROOT / "docs").as_posix() for path in PAGES if (ROOT / "docs") in path.parents}


@pytest.mark.parametrize("command", BUILDERS)
def test_help_has_no_markup(command):
    assert "``" not in BUILDERS[command]().format_help()


def test_version_is_the_same_everywhere():
    version = re.search(r'^version = "(.*)"', text_of("pyproject.toml"), flags=re.MULTILINE)[1]
    assert version == envcoder_bench.__version__
    assert f"version: {version}\n" in text_of("CITATION.cff") and f"\n## {version}\n" in text_of("CHANGELOG.md")


def site_hooks():
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "scripts" / "site_hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_of_the_site_scroll_by_themselves():
    html = site_hooks().on_page_content("<p>a</p><table>1\n</table><table>2</table>", None, None, None)
    assert re.findall(r'<div class="wide"[^>]*><table>(\d)\n?</table></div>', html) == ["1", "2"]
    assert html.startswith("<p>a</p>")


def test_flags_of_the_site_do_not_break_at_their_hyphens():
    page = "<code>eval-shapers --task x_-y</code><pre><span></span><code>a --b\n</code></pre>"
    flag = '<span class="flag">--task</span>'
    assert site_hooks().on_page_content(page, None, None, None) == page.replace("--task", flag)


def test_hook_of_the_site_names_files_that_it_does_not_have_and_separates_lists(caplog):
    hook = site_hooks()
    page = type("Page", (), {"file": type("File", (), {"src_uri": "tasks/Ant.md"})})
    config = {"docs_dir": str(ROOT / "docs")}
    text = "[a](../faq.md#x) [the code](../../eval_shapers.py#L1) [auto_shape.py](../../auto_shape.py)"
    assert hook.on_page_markdown(text, page, config, None) == (
        "[a](../faq.md#x) the code (`eval_shapers.py`) `auto_shape.py`"
    )
    text = "Some:\n- a\n- b\n  c\n\n```text\nx\n- y\n```\n"
    assert hook.on_page_markdown(text, page, config, None) == text.replace("Some:\n", "Some:\n\n")
    assert not caplog.records
    hook.on_page_markdown("[b](../../nowhere.py)", page, config, None)
    assert "tasks/Ant.md links to ../../nowhere.py, which does not exist" in caplog.text
