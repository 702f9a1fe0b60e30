"""Aliases of YAML are refused before anything multiplies them."""

import time

import pytest

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.plain_yaml import refuse_aliases
from envcoder_bench.grid.inputs import read_inputs
from envcoder_bench.run.folder.folder_config import load_config
from envcoder_bench.search.folder import SearchFolder

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10)}]\n" for k in range(1, 9)
)


def test_texts_without_aliases_pass():
    refuse_aliases("a: 'x * y'\nb: &name [1, 2]\nc: 2*3\nd: |\n  *no\n")
    refuse_aliases("{*")  # another reader says what is wrong


def test_billions_of_values_are_refused_in_every_folder(tmp_path):
    (tmp_path / "config.yaml").write_text(f"llm: m\n{LAUGHS}")
    began = time.process_time()
    with pytest.raises(ValueError, match=r"line 2: \*a0 repeats another part"):
        load_config(LAUGHS)
    for read in (SearchFolder.open, read_inputs):
        with pytest.raises(UserError):
            read(tmp_path)
    assert time.process_time() - began < 5
