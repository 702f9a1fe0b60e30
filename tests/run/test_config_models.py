"""The files of cfg/ and the models of their keys agree."""

import argparse
import re
from pathlib import Path

import pytest

from envcoder_bench.cli.auto_shape import build_parser as auto_shape
from envcoder_bench.cli.eval_policies import build_parser as eval_policies
from envcoder_bench.cli.eval_shapers import build_parser as eval_shapers
from envcoder_bench.core.errors import UserError
from envcoder_bench.core.settings import Keys, dotted, fields, plain, select
from envcoder_bench.core.yaml_files import read_leaves
from envcoder_bench.grid.settings import GridSettings
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.spec import RunConfig
from envcoder_bench.search.settings import SearchSettings, compose_settings

ROOT = Path(__file__).resolve().parents[2]
MODELS = [RunConfig, SearchSettings, GridSettings]


def comments(text):
    """Return the comment behind each key, by dotted keys, in their order."""
    words, outer = {}, []
    for indent, key, rest in re.findall(r"^( *)(\w+):(.*)$", text, re.MULTILINE):
        outer = [*outer[: len(indent) // 2], key]
        words[".".join(outer)] = rest.partition("#")[2].strip()
    return words


def in_code(model, tree):
    """Return the part of a file's keys by dotted keys whose defaults are in the model, not in the file alone."""
    in_file = {key for key, info in model.model_fields.items() if info.is_required()} | {"defaults"}
    return {key: value for key, value in tree.items() if key.split(".")[0] not in in_file}


@pytest.mark.parametrize("model", MODELS)
def test_defaults_order_and_comments_of_the_file_are_those_of_the_model(model):
    keys = in_code(model, fields(model))
    defaults = {key: info.default for key, info in keys.items() if not isinstance(info.default, Keys)}
    leaves = in_code(model, read_leaves(ROOT / model.file))
    assert {key: plain(value) for key, value in leaves.items()} == {k: plain(v) for k, v in defaults.items()}
    words = in_code(model, comments((ROOT / model.file).read_text()))
    assert [*words] == [*keys]
    described = {key: info.description for key, info in keys.items()}
    assert {key: text for key, text in words.items() if text and text != described[key]} == {}


@pytest.mark.parametrize(
    "model, parser, least",
    [(RunConfig, eval_shapers, 10), (SearchSettings, auto_shape, 10), (GridSettings, eval_policies, 3)],
)
def test_help_has_the_descriptions_of_the_keys(model, parser, least):
    helps = {action.dest: action.help for action in parser()._actions if action.help != argparse.SUPPRESS}
    apart = ("task", "shaper_types", "video", "layouts")  # flags of other meanings
    flags = {key: info for key, info in fields(model).items() if key in helps and key not in apart}
    assert len(flags) >= least
    for key, info in flags.items():
        assert helps[key].startswith(info.description.split(";")[0])


@pytest.mark.parametrize(
    "key, info",
    [(k, i) for k, i in fields(RunConfig).items() if k not in ("task", "train", "task_source", "race.rungs")],
)
def test_a_value_of_another_type_is_refused_with_its_key(key, info):
    wrong = "{a: 1}" if "text" in str(info.annotation) or info.annotation is str else "[[x]]"
    if isinstance(info.default, Keys):
        wrong = "7"
    with pytest.raises(UserError, match=rf"^{re.escape(key)} must be "):
        compose_config("Cartpole", [f"{key}={wrong}"])


def test_composed_config_of_a_search_is_the_file():
    settings, others = compose_settings(["repair=3", "seeds=2"])
    assert others == ["seeds=2"] and settings.repair == 3
    assert dotted(settings.plain()) == {**read_leaves(ROOT / SearchSettings.file), "repair": 3}


@pytest.mark.parametrize(
    "override, wanted",
    [
        ("train.params.network.mlp.units=[8,4]", [8, 4]),
        ("evaluation.point_steps=null", None),
        ("train.params.config.gamma=1e-3", 1e-3),
        ("fitness='a, b=c.py'", "a, b=c.py"),
        ("wandb.tags=[a,b]", ["a", "b"]),
        ("train.params.config.weight_decay=0.1", 0.1),  # not in the files
        ("task.env.resetDist=${evaluation.points}", 10),
    ],
)
def test_override_sets_the_value(override, wanted):
    cfg = compose_config("Cartpole", [override])
    assert select(plain(cfg.plain()), override.partition("=")[0]) == wanted


@pytest.mark.parametrize(
    "override, words",
    [
        ("seeds=1,2", "give one value"),
        ("seedz=1", r"unknown key 'seedz' \(did you mean seed"),
        ("gamma=1", r"did you mean train\.params\.config\.gamma"),
        ("seeds=[", "cannot read the override"),
        ("seed@x=3", "keys have no @package"),
        ("evaluation={pints: 1}", "cannot read the override.*pints"),
    ],
)
def test_bad_override_is_refused(override, words):
    with pytest.raises(UserError, match=words):
        compose_config("Cartpole", [override])
