import builtins
import functools
import gc
import math
import pickle
import re
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.special
import torch
from shaping_fakes import load

from envcoder_bench import torch_utils
from envcoder_bench.shaping import shared
from envcoder_bench.shaping.contract import CandidateError, assemble, sections_of
from envcoder_bench.shaping.loading import load_candidate, load_source
from envcoder_bench.shaping.text import MAX_BYTES


def fault(code, **kwargs):
    with pytest.raises(CandidateError) as caught:
        load(code, **kwargs)
    return str(caught.value)


def test_predefined_names_need_no_import():
    candidate = load(
        """
        def compute_reward(state_dict: Dict[str, Tensor]) -> Tuple[Tensor, Optional[List[Tensor]]]:
            return torch.zeros(3) + math.pi + np.pi
        """
    )
    assert candidate.functions["compute_reward"].call({}).tolist() == pytest.approx([2 * torch.pi] * 3)


def test_aliases_are_resolved_and_modules_are_separate():
    code = "SEEN = []\ndef compute_done(state_dict): return SEEN\n"
    one, two = load(code), load(code)
    assert list(one.functions) == ["compute_terminal"]
    assert one.functions["compute_terminal"].call(None) is not two.functions["compute_terminal"].call(None)


def test_action_dim_belongs_to_the_action_function():
    candidate = load("ACTION_DIM = 2\ndef compute_torque(action): return action\ndef compute_goal(): return {}")
    assert candidate.action_dim == 2
    assert candidate.functions["compute_torque"].action_dim == 2
    assert candidate.functions["compute_goal"].action_dim is None


def test_torchscript_functions_see_their_source():
    candidate = load(
        """
        @torch.jit.script
        def compute_reward(dof_pos: Tensor, dof_vel_scale: float, weight: float = 2.0) -> Tensor:
            return dof_pos.sum(dim=-1) * dof_vel_scale * weight
        """,
        file="not/on/disk.py",
    )
    function = candidate.functions["compute_reward"]
    assert function.call(torch.ones(2, 3), 0.5).tolist() == [3.0, 3.0]
    assert [p.name for p in function.parameters] == ["dof_pos", "dof_vel_scale", "weight"]
    assert function.parameters[1].annotation is float and function.parameters[2].default == 2.0


@pytest.mark.parametrize("module", ["isaacgymenvs.utils.torch_jit_utils", "isaacgym.torch_utils"])
@pytest.mark.parametrize(
    "form", ["from {} import *", "from {} import quat_rotate", "import {} as t\nquat_rotate = t.quat_rotate"]
)
def test_isaac_gym_helper_modules_resolve_to_torch_utils(module, form):
    candidate = load(f"{form.format(module)}\ndef compute_reward(): return quat_rotate\n")
    assert candidate.functions["compute_reward"].call() is torch_utils.quat_rotate
    with pytest.raises(ImportError):
        __import__("isaacgym.gymapi")


def test_installed_isaac_gym_is_preferred(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] in ("isaacgym", "isaacgymenvs")]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "isaacgym").mkdir()
    (tmp_path / "isaacgym" / "__init__.py").write_text("")
    (tmp_path / "isaacgym" / "torch_utils.py").write_text("def torch_rand_float(*args): return 'original'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    code = "from isaacgym.torch_utils import torch_rand_float\ndef compute_reward(): return torch_rand_float()\n"
    candidate = load(code)
    assert candidate.functions["compute_reward"].call() == "original"
    assert candidate.functions["compute_reward"].random_line  # the original draws from torch's generator
    for name in [name for name in sys.modules if name.split(".")[0] == "isaacgym"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize(
    ("code", "random", "generator"),
    [("torch.zeros(3)", None, None), ("torch.rand(3)", 1, None), ("torch.randperm(3)", 1, 1)],
)
def test_lines_of_random_calls_are_reported(code, random, generator):
    function = load(f"def compute_goal(): return {code}").functions["compute_goal"]
    assert (function.random_line, function.generator_line) == (random, generator)


def test_loading_draws_from_the_seed_and_restores_the_generators():
    code = (
        "W = torch.randn(5)\nimport random\nR = random.random()\ndef compute_reward(): return W, R, np.random.rand()\n"
    )
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, again, other = [load(code, seed=seed).functions["compute_reward"].call() for seed in (1, 1, 2)]
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one[0], again[0]) and one[1] == again[1]
    assert not torch.equal(one[0], other[0]) and one[1] != other[1]


def test_warnings_of_the_compiler_name_the_file():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        load('PATTERN = "\\d"\ndef compute_reward(actions): return actions.sum(1)')
    assert {(warning.filename, warning.lineno) for warning in told} == {("mine.py", 1)}


def test_exception_while_loading_is_reported_with_the_users_line():
    code = """
    import json
    def parse(text):
        return json.loads(text)
    WEIGHTS = parse("{")
    """
    message = (
        "mine.py:4: raised JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
    )
    assert fault(code) == f"{message} while the file was loaded"
    assert fault("x = 1\nraise SystemExit(3)") == "mine.py:2: raised SystemExit: 3 while the file was loaded"


REFUSED = [
    *(
        (
            f"import {name}",
            f"1: raised ModuleNotFoundError: No module named '{name}' while the file was loaded; "
            f"read the keys of the state instead of {name} (docs/coming_from.md)",
        )
        for name in ("isaaclab", "legged_gym")
    ),
    ("def compute_reward(state_dict):\n    x = = 1", "2: syntax error: invalid syntax at 'x = = 1'"),
    (
        "import _common",
        "1: raised ModuleNotFoundError: No module named '_common' while the file was loaded; "
        "a candidate is one file: torch, numpy and isaacgym.torch_utils can be imported",
    ),
    (
        "def compute_torque(action): pass\n\ndef compute_dof_target(action): pass",
        "3: defines both compute_torque and compute_dof_target; keep one",
    ),
    (
        "def compute_terminal(state): pass\ndef compute_done(state): pass",
        "2: compute_done and compute_terminal (line 1) are one function; keep one",
    ),
    (
        "ACTION_DIM = 2\ndef compute_reward(state): return 1",
        "1: ACTION_DIM is the width of the action of compute_torque or compute_dof_target; define one or remove it",
    ),
    *(
        (
            f"ACTION_DIM = {value}\ndef compute_torque(action): return action",
            f"1: ACTION_DIM must be an int from 1 to 100, not {value}",
        )
        for value in ("0", "101", "2.0", "True")
    ),
    *(
        (code, "1: in compute_reward: must return its result at once; write it without async and yield")
        for code in (
            "async def compute_reward(state): return 1",
            "def compute_reward(state): yield 1",
            "async def compute_reward(state): yield 1",
        )
    ),
    ("\ncompute_reward = 3", "2: compute_reward must be a function, not int"),
    (
        "class compute_reward(torch.nn.Module): pass",
        "1: compute_reward must be a function or an object, not a class",
    ),
    ("compute_reward = torch.nn.ModuleList()", "1: compute_reward is a ModuleList, which has no forward"),
]


@pytest.mark.parametrize(("code", "message"), REFUSED)
def test_faulty_files_are_refused_with_the_line(code, message):
    assert fault(f"{code}\n") == f"mine.py:{message}"


@pytest.mark.parametrize(
    "value, message",
    [
        ("dof_pos + unknown_name", "undefined value unknown_name: while the file was loaded"),
        ("torch.nn.functional.normalize(dof_pos, p=2).sum(dim=1)", "'float' for argument 'p' but instead found"),
        ("sum([dof_pos])", "Arguments for call are not valid. Expected a value of type 'Tensor' for argument 'self'"),
    ],
)
def test_torchscript_compile_error_says_what_was_expected(value, message):
    told = fault(f"@torch.jit.script\ndef compute_reward(dof_pos: Tensor):\n    return {value}\n")
    assert told.startswith("mine.py:3: raised RuntimeError: ") and message in told and "\n" not in told


def test_file_without_a_known_function_is_refused():
    everything = (
        "compute_reward, compute_observation, compute_critic_observation, compute_torque, compute_dof_target, "
        "compute_initial_state, compute_goal, compute_terminal"
    )
    assert fault("x = 1\n") == f"mine.py: defines none of {everything}"
    code = "def helper(): pass\ndef compute_rewards(state): return 1\n"
    named = "helper (line 1), compute_rewards (line 2) (did you mean compute_reward?)"
    assert fault(code) == f"mine.py: defines none of {everything}; it has {named}"


def test_torch_settings_are_restored_after_loading():
    code = "getattr(torch, 'set_default_' + 'dtype')(torch.float64)\ndef compute_reward(state): return 1\n"
    assert fault(code) == (
        "mine.py: raised ValueError: changes torch's default dtype, which all candidates share: remove that statement "
        "while the file was loaded"
    )
    assert torch.get_default_dtype() is torch.float32


# attributes of a module under other names, in the same order
_REORDER = """
kept = dict(vars({0}))
for key in kept:
    delattr({0}, key)
for key, value in kept.items():
    setattr({0}, {1}.get(key, key), value)
"""


@pytest.mark.parametrize(
    ("statement", "owner", "name"),
    [
        ("setattr(torch, 'cos', torch.sin)", torch, "cos"),
        ("vars(math)['pi'] = 3.0", math, "pi"),
        ("delattr(np, 'sin')", np, "sin"),
        ("setattr(Tensor, 'cos', Tensor.sin)", torch.Tensor, "cos"),
        ("import builtins\nvars(builtins)['abs'] = max", builtins, "abs"),
        ("import torch.nn.functional as F\nsetattr(F, 'relu', F.elu)", torch.nn.functional, "relu"),
        ("setattr(Tensor, '__add__', Tensor.__sub__)", torch.Tensor, "__add__"),
        ("setattr(torch.nn.Module, '__call__', max)", torch.nn.Module, "__call__"),
        ("setattr(np.linalg, 'norm', max)", np.linalg, "norm"),
        ("setattr(np.random, 'rand', max)", np.random, "rand"),
        ("import functools\nsetattr(functools, 'partial', max)", functools, "partial"),
        ("from scipy import special\nsetattr(special, 'expit', max)", scipy.special, "expit"),
        ("import importlib\nimportlib.import_module('scipy.special').expit = 3", scipy.special, "expit"),
        ("import sys\nsys.modules['scipy.special'].expit = 3", scipy.special, "expit"),
        ("__import__('scipy.special', fromlist=['x']).stdtr = 3", scipy.special, "stdtr"),
        ("__import__('sci' 'py.' + 'special', fromlist=['x']).stdtr = 3", scipy.special, "stdtr"),
        (_REORDER.format("torch.special", {"erf": "erfc", "erfc": "erf"}), torch.special, "erf"),
        (_REORDER.format("torch.linalg", {"norm": "mean"}), torch.linalg, "norm"),
        ("from unittest.mock import ANY\nsetattr(torch.special, 'erf', ANY)", torch.special, "erf"),
        ("import builtins\nvars(builtins)['any'] = lambda values: False", builtins, "any"),
        ("import builtins\nvars(builtins)['vars'] = lambda owner: {}", builtins, "vars"),
    ],
)
def test_attributes_of_shared_modules_are_restored_after_loading(statement, owner, name):
    before = getattr(owner, name)
    told = fault(f"{statement}\ndef compute_reward(state): return 1\n")
    assert re.match(
        rf"mine\.py: raised ValueError: changes [\w.]+\.{name}(?: and [\w.]+)?, which all candidates share: ", told
    )
    assert getattr(owner, name) is before and ("cos" in vars(torch.Tensor)) is False


@pytest.mark.parametrize(
    ("statement", "owner", "name"),
    [
        ("setattr(Tensor, 'added', Tensor.sin)", torch.Tensor, "added"),
        ("setattr(torch.nn.Module, '__len__', lambda module: 1)", torch.nn.Module, "__len__"),
        ("import torch.nn.functional as F\nsetattr(F, 'isinstance', max)", torch.nn.functional, "isinstance"),
    ],
)
def test_new_attributes_that_hide_others_are_removed_after_loading(statement, owner, name):
    assert f"{name}, which all candidates share: " in fault(f"{statement}\ndef compute_reward(state): return 1\n")
    assert name not in vars(owner)


@pytest.mark.parametrize("statement", ["sys.modules['torch.special'] = math", "del sys.modules['torch.special']"])
def test_modules_that_are_replaced_or_gone_are_put_back_after_loading(statement):
    told = fault(f"import sys\n{statement}\ndef compute_reward(state): return 1\n")
    assert "changes sys.modules['torch.special'], which all candidates share: " in told
    assert sys.modules["torch.special"] is torch.special


@pytest.mark.parametrize("names", ["linalg, constants", "(\n    linalg,\n    constants,\n)"])
def test_modules_of_scipy_are_watched_where_a_file_imports_several(names, monkeypatch):
    monkeypatch.delitem(sys.modules, "scipy.constants", raising=False)
    monkeypatch.delattr(scipy, "constants", raising=False)
    told = fault(f"from scipy import {names}\nconstants.find = None\ndef compute_reward(state): return 1\n")
    assert told.startswith("mine.py: raised ValueError: changes scipy.constants.find, which all candidates share: ")


@pytest.mark.parametrize(
    ("way", "named"), [("__import__('scipy.constants')", ["scipy.constants"]), ("eval('im' + x)", [])]
)
def test_modules_of_scipy_are_loaded_before_a_file_that_may_reach_them(way, named, monkeypatch):
    """Else the module that the file loads and changes would be that of all."""
    asked = []
    monkeypatch.setattr(shared, "importlib", SimpleNamespace(import_module=asked.append))
    load("def compute_reward(state): return state.eval(1)\n")
    assert not asked
    load(f"def compute_reward(x): return {way}\n")
    assert asked == [*named, *shared._STATISTICS]


def test_statement_that_would_set_an_attribute_of_a_shared_module_is_named():
    late = "def compute_reward(x):\n    if x[0, 0] > 9:\n        torch.cos = torch.sin\n    return x[:, 0]\n"
    assert fault(late) == "mine.py:3: sets torch.cos, which changes it for all candidates; remove it"
    assert fault("import math as m\nm.pi = 3\n").startswith("mine.py:2: sets m.pi, which changes it for all")
    load("class np:\n    x = 1\nnp.x = 2\ndef compute_reward(state): return 1\n")


def test_load_source_normalizes_bom_and_line_ends(tmp_path):
    file = tmp_path / "mine.py"
    for start in (b"", b"\xef\xbb\xbf"):
        file.write_bytes(start + "# é\r\nx = 1\ry = 2\n".encode())
        assert load_source(file) == "# é\nx = 1\ny = 2\n"
    with pytest.raises(OSError):
        load_source(tmp_path / "missing.py")


def test_declared_encoding_is_refused(tmp_path):
    """In utf-7 this is ``import os``, invisible to a reader."""
    file = tmp_path / "mine.py"
    file.write_bytes(b"# coding: utf-7\nx = 1  # +AAo-import os\n")
    assert load_source(file) == "# coding: utf-7\nx = 1  # +AAo-import os\n"
    told = "mine.py:1: declares the encoding utf-7; save the file as UTF-8 and remove the declaration"
    assert fault(load_source(file)) == told
    file.write_bytes("# -*- coding: latin-1 -*-\n# é\n".encode("latin-1"))
    assert fault(load_source(file)).startswith("mine.py:1: declares the encoding latin-1")


@pytest.mark.slow
def test_large_file_is_not_read_completely(tmp_path, monkeypatch):
    file = tmp_path / "mine.py"
    with open(file, "wb") as content:
        content.truncate(1 << 40)  # a terabyte of zeros, of which the disk holds nothing
    source = load_source(file)
    assert len(source) == MAX_BYTES + 1
    assert fault(source) == "mine.py: is larger than 1 MiB; a candidate is a short file of functions"
    file.unlink()
    for line in (b"# \r\n", "# é\r".encode(), b"# \xff\n"):  # what remains of it is still too large
        file.write_bytes(b"\xef\xbb\xbf" + line * (MAX_BYTES // len(line) + 1))
        source = load_source(file)
        copy = tmp_path / "copy.py"
        copy.write_text(source, "utf-8", "surrogateescape")
        for text in (source, copy.read_text("utf-8", "surrogateescape"), load_source(copy)):
            assert "larger than 1 MiB" in fault(text)


def test_misleading_characters_give_a_warning():
    with pytest.warns(RuntimeWarning, match=r"mine.py:2: has the character U\+202E \(RIGHT-TO-LEFT OVERRIDE\)"):
        assert load("x = 1\ny = '\u202e'\ndef compute_reward(state): return 1\n")


def test_torchscript_finds_its_source_after_a_form_feed():
    candidate = load(
        "x = 1\n\x0c\n# one line\u2028 for Python\n@torch.jit.script\n"
        "def compute_reward(dof_pos: Tensor) -> Tensor:\n    return dof_pos.sum(dim=-1)\n"
    )
    assert candidate.functions["compute_reward"].call(torch.ones(2, 3)).tolist() == [3.0, 3.0]


@pytest.mark.parametrize("start", [b"", b"# -*- coding: utf-8 -*-\n", b"# -*- coding: klingon -*-\n", b"\n\n\n"])
def test_non_utf_8_bytes_are_refused_with_their_line(tmp_path, start):
    bad = tmp_path / "bad.py"
    bad.write_bytes(start + b"def compute_reward(state): return 1\n# \xff\xfe\n")
    line = start.count(b"\n") + 2
    assert fault(load_source(bad)) == f"mine.py:{line}: is not UTF-8 text from here on; save the file as UTF-8"


def test_module_is_unloaded_with_its_last_function():
    gc.collect()
    before = set(sys.modules)
    candidate = load("def compute_reward(state): return 1\ndef compute_goal(state): return 1\n")
    goal = candidate.functions["compute_goal"]
    (name,) = set(sys.modules) - before
    del candidate
    gc.collect()
    assert name in sys.modules
    del goal
    gc.collect()
    assert name not in sys.modules


def test_errors_support_pickle_and_str():
    error = CandidateError("went wrong", "a.py", 3, "compute_goal")
    assert str(pickle.loads(pickle.dumps(error))) == "a.py:3: in compute_goal: went wrong"
    assert str(CandidateError("went wrong")) == "went wrong"
    assert str(CandidateError("went wrong", "a.py")) == "a.py: went wrong"


BASE = "def compute_reward(s): return 'base'\ndef compute_observation(s): pass\ndef compute_torque(action): pass\n"


def test_assemble_takes_requested_types_from_the_candidate():
    baseline = load(BASE, "human")
    candidate = load("def compute_reward(s): return 'own'\ndef compute_dof_target(action): pass\n")
    everything = assemble(candidate, baseline, None)
    assert everything.name == "mine" and everything.file == "mine.py"
    assert everything.functions["reward"] is candidate.functions["compute_reward"]
    assert everything.functions["observation"] is baseline.functions["compute_observation"]
    assert (
        everything.functions["command"] is candidate.functions["compute_dof_target"]
    )  # wins over the baseline's other kind
    assert "goal" not in everything.functions
    reward_only = assemble(candidate, baseline, ["compute_reward"])
    assert reward_only.functions["command"] is baseline.functions["compute_torque"]
    assert "terminal" in assemble(load("def compute_done(s): pass"), baseline, ["compute_done"]).functions


def test_assemble_refuses_missing_and_unknown_functions():
    candidate = load("def compute_goal(s): return {}\n")
    with pytest.raises(CandidateError) as caught:
        assemble(candidate, load(BASE, "human"), ["compute_reward"])
    assert str(caught.value) == "mine.py: defines none of the asked compute_reward; it defines compute_goal"
    with pytest.raises(CandidateError) as caught:
        assemble(candidate, candidate)
    assert str(caught.value) == "mine.py: needs compute_reward: neither it nor the baseline mine defines one"
    with pytest.raises(ValueError, match=r"'compute_rewrd' is not a shaper type \(did you mean compute_reward\?\)"):
        assemble(candidate, candidate, ["compute_rewrd"])


def test_dicts_of_terms_are_named_where_they_are_not_read():
    with pytest.raises(CandidateError, match="the dict rewards is for tasks of mjlab and Isaac Lab"):
        load_candidate("mine", 'rewards = {"upright": 1.0}\n', "mine.py")


def test_functions_that_a_task_adds_are_of_the_dict_that_they_stand_for():
    def complete(module, source):
        return {"compute_reward": lambda reward_buf: 2.0 * reward_buf}, {"rewards": module["rewards"]}

    candidate = load_candidate("mine", '\nrewards = {"upright": 1.0}\n', "mine.py", complete=complete)
    function = candidate.functions["compute_reward"]
    assert (
        function.line == 2
        and function.call(3.0) == 6.0
        and sections_of(candidate.definitions) == {"rewards": {"upright": 1.0}}
    )


def test_a_dict_that_a_task_refuses_has_its_line():
    def complete(module, source):
        error = ValueError("there is no 'upright'")
        error.section, error.key = "rewards", "upright"
        raise error

    with pytest.raises(CandidateError, match="there is no 'upright'") as error:
        load_candidate("mine", 'rewards = {\n    "a": 1.0,\n    "upright": 1.0,\n}\n', "mine.py", complete=complete)
    assert error.value.fault.line == 3
