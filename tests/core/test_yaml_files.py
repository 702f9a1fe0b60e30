"""Aliases and references of YAML are refused before anything multiplies them."""

import time

import pytest

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.settings import plain
from envcoder_bench.core.yaml_files import overridden, parse_plain, parse_yaml, read_leaves, read_yaml, to_yaml
from envcoder_bench.grid.inputs import read_inputs
from envcoder_bench.run.folder.provenance import load_config
from envcoder_bench.search.folder import SearchFolder
from envcoder_bench.sources.outside import from_folder

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10)}]\n" for k in range(1, 9)
)


@pytest.mark.parametrize("deep", ["[" * 1000, "- " * 9000, "? " * 9000, "\n".join(" " * i + "a:" for i in range(1200))])
def test_a_deep_text_is_refused_and_ends_no_process(deep):
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_yaml(deep)


def test_a_few_aliases_are_read():
    text = "a: 'x * y'\nb: &name {c: [1, 2]}\nd: *name\ne: {<<: *name, f: 2*3}\n"
    assert plain(parse_yaml(text)) == {
        "a": "x * y",
        "b": {"c": [1, 2]},
        "d": {"c": [1, 2]},
        "e": {"c": [1, 2], "f": "2*3"},
    }


@pytest.mark.parametrize("text", [LAUGHS, "a: &a [*a, *a]\n", "a: &a {b: *a}\n"])
def test_aliases_that_stand_for_billions_of_values_are_refused(text, tmp_path):
    (file := tmp_path / "config.yaml").write_text(text)
    began = time.process_time()
    with pytest.raises(ValueError, match="aliases"):
        load_config(text)
    for read in (read_yaml, read_leaves):
        with pytest.raises(ValueError, match=r"config\.yaml.*aliases"):
            read(file)
    file.write_text(f"llm: m\n{text}")
    for read in (SearchFolder.open, read_inputs):
        with pytest.raises(UserError):
            read(tmp_path)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("text", ["a: 1\nb: ${a}", "a: 1\nb: [{c: '${a}${a}'}]"])
def test_references_in_the_text_of_a_run_are_refused(text):
    with pytest.raises(ValueError, match=r"b(\.0\.c)? is a reference, which a run does not write"):
        parse_yaml(text)


def test_references_in_a_file_of_ones_own_are_resolved(tmp_path):
    (file := tmp_path / "a.yaml").write_text("a: 1\nb: {c: '${a}${a}', d: '${.c}'}\n")
    assert plain(read_yaml(file))["b"] == {"c": "11", "d": "11"}
    assert overridden(read_yaml(file), "f=${b.c}").f == "11"


def test_a_folder_of_a_task_with_aliases_that_multiply_is_refused(tmp_path):
    (tmp_path / "task.yaml").write_text(LAUGHS)
    (tmp_path / "task.py").write_text("")
    with pytest.raises(ValueError, match=r"task\.yaml.*aliases"):
        from_folder(tmp_path)
    with pytest.raises(ValueError, match="aliases"):
        parse_plain(LAUGHS)
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_plain("[" * 1000)


def test_texts_with_dollar_signs_are_read_as_they_were_written(tmp_path):
    texts = ["cost below ${budget}", "${x", r"\${x}", r"a\\${b} \ c", "evaluation.num_envs=${num_envs}", "$", "{}"]
    tree = {"a": texts, "b": {"c": texts[0]}}
    (file := tmp_path / "config.yaml").write_text(to_yaml(tree))
    assert plain(read_yaml(file)) == plain(parse_yaml(to_yaml(tree))) == tree


def test_keys_that_are_equal_and_of_other_types_are_written_as_they_are():
    assert [to_yaml({key: 2}) for key in (1, True, 1.0)] == ["1: 2\n", "true: 2\n", "1.0: 2\n"]


@pytest.mark.parametrize("text", ["a: |#b", "a: >#b"])
def test_a_block_scalar_whose_header_is_not_yaml_is_refused(text):
    with pytest.raises(ValueError, match="line 1: "):
        parse_yaml(text)


def test_text_of_a_run_is_parsed_once():
    assert parse_yaml("a: {b: 1}") is parse_yaml("a: {b: 1}")  # settings cannot be changed
