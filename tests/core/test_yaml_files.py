"""Aliases and references of YAML are refused before anything multiplies them."""

import functools
import time

import pytest

from envcoder_bench.core import yaml_files
from envcoder_bench.core.errors import UserError
from envcoder_bench.core.settings import plain
from envcoder_bench.core.yaml_files import overridden, parse_plain, parse_yaml, read_leaves, read_yaml, to_yaml
from envcoder_bench.grid.inputs import read_inputs
from envcoder_bench.run.folder.provenance import load_config
from envcoder_bench.search.folder import SearchFolder
from envcoder_bench.sources.isaacgym_tasks import source as isaacgym_source
from envcoder_bench.sources.outside import from_folder

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10)}]\n" for k in range(1, 9)
)
# each line refers to the one before it: in texts, lists, mappings, by relative keys, by resolvers
_REFERENCES = {
    "text": ("${a#}", "'{}'"),
    "list": (", '${a#}'", "[x{}]"),
    "mapping": (", k%: '${a#}'", "{{x: x{}}}"),
    "relative": ("${.a#}", "'{}'"),
    "resolver": ("${oc.select:a#}", "'{}'"),
    "created": ("${oc.decode:'${a#}'}", '"{}"'),
}


def referring(kind, lines=10, each=8):
    """A YAML of a few lines that stands for 8 ** 9 values."""
    part, whole = _REFERENCES[kind]
    texts = ["a0: '0123456789'"]
    for line in range(1, lines):
        parts = "".join(part.replace("#", str(line - 1)).replace("%", str(k)) for k in range(each))
        texts.append(f"a{line}: {whole.format(parts)}")
    return "\n".join(texts) + "\n"


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


@pytest.mark.parametrize("kind", _REFERENCES)
def test_references_that_stand_for_billions_of_values_are_refused(kind, monkeypatch):
    if kind not in ("list", "mapping"):  # others take seconds to reach the limits
        monkeypatch.setattr(yaml_files, "_Allowance", functools.partial(yaml_files._Allowance, 50, 15_000))
    with pytest.raises(ValueError, match=r"its references.*are more than.*write the values"):
        parse_yaml(referring(kind))


def test_files_whose_references_stand_for_billions_of_values_are_refused(tmp_path):
    for read in (read_yaml, read_leaves, isaacgym_source.read_yaml):
        (file := tmp_path / "config.yaml").write_text(referring("mapping" if read is read_leaves else "list"))
        with pytest.raises(ValueError, match=r"config\.yaml: its references.*are more than"):
            read(file)


def test_a_long_list_that_is_referred_to_often_is_refused():
    for value in (f"[{'0,' * 1500}]", "x" * 1500):
        with pytest.raises(ValueError, match="its references"):
            parse_yaml(f"a: {value}\n" + "".join(f"b{k}: ${{a}}\n" for k in range(220)))


def test_as_many_references_as_configs_have_are_resolved():
    text = "a: 1\nb: {c: '${a}${a}', d: '${.c}'}\n" + "".join(f"e{k}: ${{b}}\n" for k in range(100))
    assert plain(parse_yaml(text))["e99"] == {"c": "11", "d": "11"}
    assert overridden(parse_yaml(text), "f=${b.c}").f == "11"


def test_a_folder_of_a_task_with_aliases_that_multiply_is_refused(tmp_path):
    (tmp_path / "task.yaml").write_text(LAUGHS)
    (tmp_path / "task.py").write_text("")
    with pytest.raises(ValueError, match=r"task\.yaml.*aliases"):
        from_folder(tmp_path)
    with pytest.raises(ValueError, match="aliases"):
        parse_plain(LAUGHS)
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_plain("[" * 5000)


def test_texts_with_dollar_signs_are_read_as_they_were_written(tmp_path):
    texts = ["cost below ${budget}", "${x", r"\${x}", r"a\\${b} \ c", "evaluation.num_envs=${num_envs}", "$", "{}"]
    tree = {"a": texts, "b": {"c": texts[0]}}
    (file := tmp_path / "config.yaml").write_text(to_yaml(tree))
    assert plain(read_yaml(file)) == plain(parse_yaml(to_yaml(tree))) == tree


def test_text_is_parsed_once_unless_it_refers_to_something(monkeypatch):
    assert parse_yaml("a: {b: 1}") is parse_yaml("a: {b: 1}")  # settings cannot be changed
    for value in ("1", "2"):
        monkeypatch.setenv("OF_THIS_TEST", value)
        assert parse_yaml("a: ${oc.env:OF_THIS_TEST}").a == value
