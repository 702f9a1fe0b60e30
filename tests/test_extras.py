"""Where an optional package is missing, the message names the extra of this package that has it."""

import importlib.util
import re
import sys
import tomllib
from pathlib import Path

import pytest

from envcoder_bench.core.errors import UserError
from envcoder_bench.grid.policy_files import read_policy
from envcoder_bench.report.wandb_log import check_wandb
from envcoder_bench.run.workers.ray_cluster import import_ray
from envcoder_bench.serve.server import make_server
from envcoder_bench.video import render

PROJECT = Path(__file__).parent.parent / "pyproject.toml"
EXTRAS = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
USERS = {
    "mcp": lambda: make_server(None),
    "av": lambda: pytest.fail(render.missing.__wrapped__()),
    "onnx": lambda: read_policy("p", Path("policy.onnx")),
    "ray": import_ray,
    "wandb": lambda: check_wandb("offline"),
}


@pytest.mark.parametrize("package", USERS)
def test_missing_package_names_its_extra(monkeypatch, package):
    for name in [package, *sys.modules]:
        if name.partition(".")[0] == package:  # a test before this one may have imported parts of it
            monkeypatch.setitem(sys.modules, name, None)
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else find(name))
    with pytest.raises((UserError, pytest.fail.Exception)) as error:
        USERS[package]()
    message = str(error.value)
    (extra,) = re.findall(r"envcoder-bench\[(\w+)\]", message)
    assert package in message and any(re.match(rf"{package}\b", needed) for needed in EXTRAS[extra])
