"""Policies from files of four kinds, their widths, and layouts."""

import json
import time
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from grids import POINTS, SPOT, layouts, network

from envcoder_bench.core.errors import UserError
from envcoder_bench.grid.policies import (
    LoadedPolicy,
    _action_scale,
    _check_actions,
    _layout_of_run,
    in_blocks,
    load_policy_file,
)
from envcoder_bench.grid.policy_files import OnnxSession, RunPolicy, read_policy
from envcoder_bench.grid.robots import observe, read_layout
from envcoder_bench.grid.settings import compose_settings


def _load(path, layout=None, name="mine"):
    return load_policy_file(name, path, layouts(), layout, SPOT)


def _torchscript(net, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.trace(net, torch.zeros(2, net[0].in_features)), str(path))


def _onnx(net, path, last="Identity", width=None):
    onnx = pytest.importorskip("onnx")
    from onnx import helper, numpy_helper

    nodes, constants, x = [], [], "obs"
    for k, layer in enumerate(net):
        if isinstance(layer, torch.nn.Linear):
            for part in ("weight", "bias"):
                constants.append(numpy_helper.from_array(getattr(layer, part).numpy(), f"{part}{k}"))
            nodes.append(helper.make_node("Gemm", [x, f"weight{k}", f"bias{k}"], [f"x{k}"], transB=1))
        else:
            nodes.append(helper.make_node("Elu", [x], [f"x{k}"], alpha=1.0))
        x = f"x{k}"
    nodes.append(helper.make_node(last, [x], ["actions"]))
    shape = ["n", width or net[0].in_features]
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info("obs", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("actions", onnx.TensorProto.FLOAT, ["n", 12])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    model.ir_version = 9
    onnx.save(model, str(path))


@pytest.mark.parametrize("width, layout", [(48, "flat"), (235, "rough")])
def test_torchscript_policy_matches_its_network(tmp_path, width, layout) -> None:
    net = network(width)
    _torchscript(net, tmp_path / "policy.pt")
    loaded = _load(tmp_path / "policy.pt")
    assert (loaded.kind, loaded.layout.name) == ("torchscript", layout)
    obs = torch.randn(7, width)
    torch.testing.assert_close(loaded.act(obs)[0], net(obs))


def test_onnx_with_supported_operators_runs_in_torch(tmp_path) -> None:
    net = network(235)
    _onnx(net, tmp_path / "policy.onnx")
    loaded = _load(tmp_path / "policy.onnx")
    assert (loaded.kind, loaded.layout.name, loaded.capturable) == ("onnx", "rough", True)
    obs = torch.randn(7, 235)
    torch.testing.assert_close(loaded.act(obs)[0], net(obs))


def test_onnx_with_other_operators_runs_in_onnxruntime(tmp_path) -> None:
    pytest.importorskip("onnxruntime")
    net = network(48)
    _onnx(net, tmp_path / "policy.onnx", last="Sin")
    loaded = _load(tmp_path / "policy.onnx")
    assert (loaded.kind, loaded.layout.name, loaded.capturable) == ("onnx", "flat", False)
    obs = torch.randn(7, 48)
    torch.testing.assert_close(loaded.act(obs)[0], torch.sin(net(obs)), atol=1e-6, rtol=1e-5)


def _looping(path, levels=0):
    """A policy with an endless loop of ONNX, or with functions each of which calls the one before it twice."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    def info(name, kind=TensorProto.FLOAT, shape=("n", 48)):
        return helper.make_tensor_value_info(name, kind, shape)

    functions = []
    for k in range(levels):
        calls = [helper.make_node("Sin" if k == 0 else f"f{k - 1}", ["x"], ["y"], domain="" if k == 0 else "mine")]
        calls.append(helper.make_node("Sin" if k == 0 else f"f{k - 1}", ["y"], ["z"], domain="" if k == 0 else "mine"))
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid("mine", 1)]
        functions.append(helper.make_function("mine", f"f{k}", ["x"], ["z"], calls, opsets))
    body = [helper.make_node("Identity", ["going"], ["again"]), helper.make_node("Sin", ["x"], ["y"])]
    values = [info("k", TensorProto.INT64, ()), info("going", TensorProto.BOOL, ()), info("x")]
    loop = helper.make_graph(body, "loop", values, [info("again", TensorProto.BOOL, ()), info("y")])
    true = helper.make_node("Constant", [], ["true"], value=helper.make_tensor("t", TensorProto.BOOL, (), [True]))
    nodes = [true, helper.make_node("Loop", ["", "true", "obs"], ["actions"], body=loop)]
    if levels:
        nodes = [helper.make_node(f"f{levels - 1}", ["obs"], ["actions"], domain="mine")]
    graph = helper.make_graph(nodes, "policy", [info("obs")], [info("actions")])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("mine", 1)]
    model = helper.make_model(graph, opset_imports=opsets, functions=functions)
    model.ir_version = 9
    onnx.save(model, str(path))


@pytest.mark.parametrize(
    ("levels", "message"), [(0, "its operator Loop may not end"), (60, "more than 20,000 operators")]
)
def test_onnx_that_may_not_end_is_refused(tmp_path, levels, message) -> None:
    _looping(tmp_path / "policy.onnx", levels)
    with pytest.raises(UserError, match=rf"policy p: .*policy\.onnx is refused: .*{message}"):
        read_policy("p", tmp_path / "policy.onnx")
    pytest.importorskip("onnxruntime")
    _looping(tmp_path / "policy.onnx", 3)
    obs = torch.randn(2, 48)
    expected = obs
    for _ in range(8):
        expected = torch.sin(expected)
    torch.testing.assert_close(read_policy("p", tmp_path / "policy.onnx")[1](obs), expected)


def test_rsl_rl_checkpoint_is_loaded_with_its_normalizer(tmp_path) -> None:
    net = network(48)
    state = {f"actor.{key}": value for key, value in net.state_dict().items()}
    state.update({"std": torch.ones(12), "critic.0.weight": torch.ones(1, 48)})
    torch.save({"model_state_dict": state, "iter": 3}, tmp_path / "model_3.pt")
    loaded = _load(tmp_path / "model_3.pt")
    obs = torch.randn(5, 48)
    assert loaded.kind == "rsl_rl"
    torch.testing.assert_close(loaded.act(obs)[0], net(obs))
    norm = {"_mean": torch.full((1, 48), 0.5), "_std": torch.full((1, 48), 2.0)}
    torch.save({"model_state_dict": state, "obs_norm_state_dict": norm}, tmp_path / "normed.pt")
    torch.testing.assert_close(_load(tmp_path / "normed.pt").act(obs)[0], net((obs - 0.5) / 2.01))


class _Memory(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(1, 12))
        self.last: torch.Tensor

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        self.last[:] = 0.5 * self.last + obs[:, :12]
        return self.last


@pytest.mark.parametrize(
    "make, layout, message",
    [
        (lambda path: _torchscript(network(47), path), None, "takes 47 observations, and no layout has as many"),
        (lambda path: _torchscript(network(48), path), "rough", "takes 48 observations, and the layout rough has 235"),
        (lambda path: path.write_bytes(b"no policy"), None, "cannot be read: it must be TorchScript, ONNX"),
        (lambda path: path.write_text("hello\n"), None, "cannot be read: it must be TorchScript, ONNX"),
        (
            lambda path: torch.save({"model_state_dict": {"actor.0.weight": torch.ones(3, 3)}}, path),
            None,
            "cannot be read: it must be TorchScript, ONNX",
        ),
        (lambda path: torch.save({"model_state_dict": {"critic.0.weight": torch.ones(2, 2)}}, path), None, "an actor"),
        (lambda path: _torchscript(torch.nn.Sequential(torch.nn.Linear(48, 11)), path), None, "robot has 12 joints"),
        (
            lambda path: torch.jit.script(_Memory()).save(str(path)),
            "flat",
            "different actions for the same observation",
        ),
        (lambda path: None, None, "does not exist"),
    ],
)
def test_invalid_policy_is_refused_by_name(tmp_path, make, layout, message) -> None:
    make(tmp_path / "policy.pt")
    with pytest.raises(UserError) as error:
        _load(tmp_path / "policy.pt", layout)
    assert str(error.value).startswith("policy mine: ") and message in str(error.value)


def test_empty_onnx_file_is_refused_by_name(tmp_path) -> None:
    (tmp_path / "policy.onnx").write_bytes(b"")
    with pytest.raises(UserError, match=r"policy mine: .* it is damaged, or not ONNX"):
        _load(tmp_path / "policy.onnx", None)


def _of_run(task="SpotTerrain", width=235, observes=False, **control):
    return RunPolicy(network(width), task, control, observes)


def _chosen(module, wanted=None):
    settings, width = compose_settings(), module.policy[0].in_features
    return _layout_of_run("mine", module, width, layouts(), wanted, SPOT, settings)


@pytest.mark.parametrize(
    "module, wanted, layout",
    [
        (_of_run(), None, "rough"),
        (_of_run(), "rough_isaac", "rough_isaac"),
        (_of_run("Mine", 48), "flat", "flat"),
        (_of_run("SpotTerrain", 48), None, None),  # the width decides
    ],
)
def test_policy_of_a_run_has_the_layout_of_its_task(module, wanted, layout) -> None:
    assert _chosen(module, wanted) == layout


@pytest.mark.slow
def test_policy_of_another_robot_or_observation_is_refused_and_other_drives_are_logged(caplog) -> None:
    with pytest.raises(UserError, match="it is of the task Anymal, and the robot is spot"):
        _chosen(_of_run("Anymal", 48))
    with pytest.raises(UserError, match="compute_observation of its own: give --layouts mine=LAYOUT"):
        _chosen(_of_run(observes=True))
    assert _chosen(_of_run(observes=True), "rough") == "rough"
    assert _chosen(_of_run(stiffness=60.0, actionScale=0.5)) == "rough" and not caplog.records
    _chosen(_of_run(stiffness=85.0))
    assert "trained with robots.spot.stiffness=85.0, and the grid has 60.0" in caplog.text


def test_action_scale_comes_from_the_layout_or_the_run() -> None:
    for of_run, of_layout, scale in ((0.5, None, 0.5), (0.5, 0.3, 0.3), (None, 0.3, 0.3), (None, None, None)):
        control = {} if of_run is None else {"actionScale": of_run}
        assert _action_scale(_of_run(**control), replace(layouts()["rough"], action_scale=of_layout)) == scale


def test_blocked_rows_are_independent_of_other_rows(tmp_path) -> None:
    net = network(235)
    _torchscript(net, tmp_path / "policy.pt")
    loaded = _load(tmp_path / "policy.pt")
    obs = torch.randn(150, 235)
    every = loaded.act(obs)[0]
    for k in (0, 3, 64, 149):
        assert torch.equal(loaded.act(obs[k : k + 1])[0][0], every[k])
    assert torch.equal(in_blocks(net, obs, 1)[5], net(obs[5:6])[0])


class _OneRow(OnnxSession):
    memory_dim = 3

    def __init__(self) -> None:
        torch.nn.Module.__init__(self)

    def forward(self, both: torch.Tensor) -> torch.Tensor:
        assert len(both) == 1
        return both.new_zeros(1, 12 + self.memory_dim)


def test_session_takes_its_number_of_rows_on_every_device() -> None:
    loaded = LoadedPolicy("mine", "policy.onnx", "onnx", _OneRow(), layouts()["flat"], False, 1)
    for device in ("cpu", "meta"):
        assert loaded.act(torch.zeros(4, 48, device=device))[0].shape == (4, 12)


def test_width_of_the_actions_in_a_message_is_without_the_memory() -> None:
    with pytest.raises(UserError, match="actions of width 12, and the robot has 11 joints"):
        _check_actions("mine", Path("policy.onnx"), _OneRow(), layouts()["flat"], 11)


def _values(n=2):
    names = {"lin_vel": 3, "ang_vel": 3, "gravity": 3, "commands": 3, "joint_pos": 12, "joint_vel": 12, "actions": 12}
    first, values = 0, {}
    for name, width in {**names, "scan": 187}.items():
        values[name] = torch.arange(first, first + width).float().repeat(n, 1)
        first += width
    return values


def test_flat_and_rough_layouts_have_48_and_235_values() -> None:
    known = layouts()
    assert {name: own.width for name, own in known.items()} == {
        "flat": 48, "rough": 235, "flat_isaac": 48, "rough_isaac": 235, "anymal": 48, "anymal_terrain": 188,
    }  # fmt: skip
    assert observe(known["rough"], _values())[1].tolist() == list(map(float, range(235)))


def test_isaac_lab_layout_sorts_joints_by_kind() -> None:
    own = layouts()["flat_isaac"]
    names = [SPOT.dof_names[j] for j in own.joints]
    assert names == [f"{leg}_{joint}" for joint in ("hx", "hy", "kn") for leg in ("fl", "fr", "hl", "hr")]
    observed = observe(own, _values())[0, 12:24]
    assert np.array_equal(observed.numpy(), 12.0 + np.array(own.joints))


def test_order_scales_and_joints_are_configurable() -> None:
    given = {"parts": ["commands", "joint_vel"], "scales": {"joint_vel": 0.1}, "joints": SPOT.dof_names[::-1]}
    observed = observe(_layout_of(given), _values())[0]
    assert observed.tolist() == pytest.approx([9.0, 10.0, 11.0, *(0.1 * k for k in range(35, 23, -1))])


def _layout_of(given):
    settings = compose_settings([f"layouts.mine={json.dumps(given)}"])
    return read_layout("mine", settings.layouts["mine"], SPOT.dof_names, POINTS)


@pytest.mark.parametrize(
    "given, message",
    [
        ({"parts": ["lin_vl"]}, r"layouts.mine.parts must be a list of .*, got \['lin_vl'\] \(did you mean lin_vel"),
        ({"parts": ["scan"], "part": 1}, r"unknown key 'layouts.mine.part' \(did you mean layouts\.\*\.parts"),
        ({"scales": {}}, "layouts.mine.parts is missing"),
        ({"parts": []}, "layouts.mine.parts must be a list of some of lin_vel"),
        (5, "layouts.mine must be a mapping with the keys parts, scales, joints, scan, action_scale, got 5"),
        ({"parts": ["scan"], "action_scale": 0}, "layouts.mine.action_scale must be a number above 0, or null, got 0"),
        ({"parts": 5}, "layouts.mine.parts must be a list of some of lin_vel"),
        ({"parts": ["scan"], "scales": 5}, "layouts.mine.scales must be factors of its parts"),
        ({"parts": ["scan"], "scales": {"scan": [1, 2, 3]}}, "layouts.mine.scales must be factors of its parts"),
        ({"parts": ["scan"], "scan": {"x": ["a"], "y": [1]}}, "layouts.mine.scan.x must be a list of numbers"),
        ({"parts": ["scan"], "scan": {"x": [1]}}, "layouts.mine.scan.y is missing"),
        ({"parts": ["scan"], "joints": 5}, "layouts.mine.joints must be by_leg, by_kind or a list of names"),
        ({"parts": ["scan"], "scales": {"gravity": 1.0}}, "layouts.mine.scales must be factors of its parts"),
        ({"parts": ["scan"], "joints": ["fl_hx"]}, "layouts.mine.joints must be by_leg, by_kind or a list of all of"),
    ],
)
def test_invalid_layout_is_refused_by_name(given, message) -> None:
    with pytest.raises(UserError, match=f"^{message}"):
        _layout_of(given)


class _Writes(torch.nn.Module):
    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return obs[:, :12] + torch.from_file(self.file, True, 12)


class _Saves(_Writes):
    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        torch.save(obs, self.file)
        return obs[:, :12]


def _edited(path, old, new):
    """Replace a part of the code in a TorchScript file; torch compares no checksums."""
    with zipfile.ZipFile(path) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    assert any(old in content for content in records.values())
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in records.items():
            archive.writestr(name, content.replace(old, new) if name.endswith(".py") else content)


_EDITS = {
    "a default, which runs when the file is loaded": (b"input: Tensor)", b"input: Tensor, y: Tensor=CALL)"),
    "a name with an escape": (b"Tensor:\n", b'Tensor:\n    _9 = getattr(torch, "from_\\146ile")("FILE", True, 9)\n'),
    "a name in parts": (b"Tensor:\n", b'Tensor:\n    _9 = getattr(torch, "from_" "file")("FILE", True, 9)\n'),
    "another name of torch": (b"Tensor:\n", b'Tensor:\n    t = torch\n    _9 = t.from_file("FILE", True, 9)\n'),
    "spaces": (b"Tensor:\n", b'Tensor:\n    _9 = torch . from_file ("FILE", True, 9)\n'),
    "other operators": (b"Tensor:\n", b"Tensor:\n    ops.c10d.barrier()\n"),
    "classes": (b"Tensor:\n", b"Tensor:\n    _9 = __torch__.torch.classes.dist_c10d.FileStore()\n"),
    "classes on another line": (
        b"Tensor:\n",
        b"Tensor:\n    _9 = (__torch__.torch. #c\n    classes.dist_c10d.FileStore)()\n",
    ),
}


@pytest.mark.parametrize("attack", [_Writes, _Saves, *_EDITS])
def test_torchscript_that_could_write_files_is_refused(tmp_path, attack) -> None:
    path, file = tmp_path / "policy.pt", tmp_path / "was_here"
    if isinstance(attack, str):
        old, new = _EDITS[attack]
        _torchscript(network(48), path)
        new = new.replace(b"CALL", b'torch.from_file("FILE", True, 9)').replace(b"FILE", str(file).encode())
        _edited(path, old, new)
    else:
        torch.jit.script(attack(str(file))).save(str(path))
    with pytest.raises(UserError, match=r"policy p: .* is refused: .* line [0-9]+: .*; export it as ONNX"):
        read_policy("p", path)
    assert not file.exists()


class _Strided(torch.nn.Module):
    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._reshape_alias(obs, [1, 12], [1 << 40, 1 << 40])


class _Endless(torch.nn.Module):
    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        while True:
            obs = obs + 1
        return obs[:, :12]


class _ByData(torch.nn.Module):
    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        for _ in range(int(obs.sum())):
            obs = obs + 1
        return obs[:, :12]


class _Long(torch.nn.Module):
    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        for _ in range(1000):
            for _ in range(1000):
                obs = obs + 1
        return obs[:, :12]


class _Twice(torch.nn.Module):
    def __init__(self, levels: int) -> None:
        super().__init__()
        self.inner = _Twice(levels - 1) if levels else torch.nn.Identity()

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.inner(self.inner(obs))


_COMPUTED = b"torch._reshape_alias(torch.zeros([1]), [1 << 40], [1])"


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (_Strided, r"its operator aten::_reshape_alias is not one of those that policies need \(.*_Strided\.forward\)"),
        (_Endless, "it has a loop whose length is not fixed"),
        (_ByData, "it has a loop whose length is not fixed"),
        (_Long, "a call executes more than 20,000 operators"),
        (lambda: _Twice(40), "a call executes more than 20,000 operators"),
        ((b"input: Tensor)", b"input: Tensor, y: Tensor=%b)" % _COMPUTED), "its code runs while it is loaded"),
        (
            (b"  def forward", b"  x : Final[Tensor] = %b\n  def forward" % _COMPUTED),
            "its code runs while it is loaded",
        ),
        ((b"  __buffers__ = []", b"  __buffers__ = [%b]" % _COMPUTED), "its code runs while it is loaded"),
        ((b"def forward", b"def __setstate__"), "its code runs while it is loaded"),
        ((b"  def forward", b"  __forward_hooks__ = ['x', ]\n  def forward"), "its code runs while it is loaded"),
        ((b"-> Tensor:", b"-> Tensor::"), "its code is not as torch writes it"),
    ],
)
def test_torchscript_that_does_more_than_policies_need_is_refused(tmp_path, policy, message) -> None:
    path = tmp_path / "policy.pt"
    if isinstance(policy, tuple):
        _torchscript(network(48), path)
        _edited(path, *policy)
    else:
        torch.jit.script(policy()).save(str(path))
    began = time.process_time()
    with pytest.raises(UserError, match=rf"policy p: .* is refused: {message}.*; export it as ONNX"):
        read_policy("p", path)
    assert time.process_time() - began < 5


def test_torchscript_of_usual_layers_is_read(tmp_path) -> None:
    class Usual(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            norm, layer = torch.nn.LayerNorm(48), torch.nn.Linear(48, 48)
            self.net = torch.nn.Sequential(norm, layer, torch.nn.ReLU(), torch.nn.Tanh(), torch.nn.Dropout())
            self.gru, self.conv = torch.nn.GRU(48, 12), torch.nn.Conv1d(1, 1, 3)
            self.register_buffer("mean", torch.zeros(48))
            self.mean: torch.Tensor

        def forward(self, obs: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
            x = self.net((obs - self.mean) / torch.sqrt(self.mean + 1e-2)).clamp_(-5.0, 5.0)
            for _ in range(3):
                x = torch.nn.functional.silu(x) * scale
            x = torch.cat([x[:, :24], x[..., 24:]], dim=-1).view(-1, 48)
            return self.gru(x[None])[0][0] + self.conv(x[:, None])[:, 0, :12]

    module = Usual().eval()
    traced = torch.jit.trace(module, torch.zeros(2, 48), check_trace=False)
    for made in (torch.jit.script(module), traced, torch.jit.freeze(torch.jit.script(module))):
        made.save(str(tmp_path / "policy.pt"))
        kind, loaded, _ = read_policy("p", tmp_path / "policy.pt")
        obs = torch.randn(2, 48)
        assert kind == "torchscript" and torch.equal(loaded(obs), made(obs))


def test_torchscript_with_branches_and_nested_modules_is_read(tmp_path) -> None:
    class Branching(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(48, 12), torch.nn.ELU()))
            self.memory = torch.nn.LSTM(48, 12)

        def forward(self, obs: torch.Tensor) -> torch.Tensor:
            if obs.dim() != 2:
                raise ValueError("two dimensions\n")
            return self.net(obs).clamp(-5.0, 5.0) + self.memory(obs[None])[0][0]

    module = torch.jit.script(Branching())
    module.save(str(tmp_path / "policy.pt"))
    kind, loaded, _ = read_policy("p", tmp_path / "policy.pt")
    assert kind == "torchscript" and torch.equal(loaded(torch.ones(2, 48)), module(torch.ones(2, 48)))


def _recurrent(kind: str, layers: int):
    """Return an rnn with two layers behind it, and rsl_rl's names of their weights."""
    torch.manual_seed(0)
    rnn = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[kind](48, 16, layers)
    net = network(16)
    saved = {f"memory_a.rnn.{name}": x for name, x in rnn.state_dict().items()}
    saved |= {f"memory_c.rnn.{name}": 2.0 * x for name, x in rnn.state_dict().items()}
    return rnn, net, {**saved, **{f"actor.{name}": x for name, x in net.state_dict().items()}}


@pytest.mark.parametrize("kind, layers", [("lstm", 1), ("gru", 2)])
def test_memory_of_an_rsl_rl_checkpoint_goes_with_each_robot(tmp_path, kind, layers) -> None:
    rnn, net, saved = _recurrent(kind, layers)
    torch.save({"model_state_dict": saved}, tmp_path / "model.pt")
    loaded = _load(tmp_path / "model.pt")
    assert loaded.layout.name == "flat" and loaded.memory_dim == layers * 16 * (2 if kind == "lstm" else 1)
    memory, states = torch.zeros(5, loaded.memory_dim), None
    for _ in range(3):
        obs = torch.randn(5, 48)
        actions, memory = loaded.act(obs, memory)
        with torch.no_grad():
            out, states = rnn(obs.unsqueeze(0), states)
            assert torch.allclose(actions, net(out[0]), atol=1e-5)
    kept = memory.clone()
    _, memory = loaded.act(obs, torch.cat([kept[:1], torch.zeros_like(kept[1:])]))  # of one robot alone
    assert torch.equal(loaded.act(obs, kept)[1][0], memory[0])


def test_onnx_with_states_as_isaac_lab_exports_them_has_memory(tmp_path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper, numpy_helper

    # h_out = h_in + 1, action = observation's first number + h_in's first
    nodes = [
        helper.make_node("Add", ["h_in", "one"], ["h_out"]),
        helper.make_node("Slice", ["h_in", "zero", "end", "axis"], ["first"]),
        helper.make_node("Squeeze", ["first", "zero"], ["column"]),
        helper.make_node("Slice", ["obs", "zero", "end", "last"], ["seen"]),
        helper.make_node("Add", ["seen", "column"], ["sum"]),
        helper.make_node("Expand", ["sum", "shape"], ["actions"]),
    ]
    numbers = {"zero": [0], "end": [1], "axis": [2], "last": [1], "shape": [1, 12]}
    constants = [numpy_helper.from_array(np.array(x), name) for name, x in numbers.items()]
    constants.append(numpy_helper.from_array(np.float32([1.0]), "one"))
    value = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)  # noqa: E731
    inputs, outputs = (
        [value("obs", [1, 48]), value("h_in", [1, 1, 3])],
        [value("actions", [1, 12]), value("h_out", [1, 1, 3])],
    )
    model = helper.make_model(
        helper.make_graph(nodes, "policy", inputs, outputs, constants), opset_imports=[helper.make_opsetid("", 20)]
    )
    model.ir_version = 9
    onnx.save(model, str(tmp_path / "policy.onnx"))
    loaded = _load(tmp_path / "policy.onnx")
    assert loaded.memory_dim == 3 and loaded.rows == 1
    obs, memory = torch.arange(2.0).view(2, 1).repeat(1, 48), torch.zeros(2, 3)
    for step in range(3):
        actions, memory = loaded.act(obs, memory)
        assert torch.equal(actions, (obs[:, :1] + step).expand(-1, 12)) and bool((memory == step + 1).all())
