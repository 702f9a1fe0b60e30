"""Code that cannot be traced is refused with line and reason; ordinary code is not refused."""

import warnings
from dataclasses import replace
from textwrap import dedent, indent

import pytest
import torch
from shaping_fakes import FakeTask, shaping

from envcoder_bench.compile import program, trace


def traced(code: str, n: int = 6, known: bool = True):
    """The traced shaping of a candidate, and its refusals; ``known``: with what its check found."""
    task = FakeTask(n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what scripts and captures say
        checked = shaping(code, task=task, n=n)
        if not known:
            functions = {stage: replace(own, stateful_line=None) for stage, own in checked.functions.items()}
            checked = checked.with_functions(functions)
        return trace.trace(checked, task.state, task.constants, task)


def reward(body: str, before: str = "") -> str:
    """A candidate whose reward has this body from line 10 on."""
    head = dedent(before).strip()
    return (
        head
        + "\n" * (9 - head.count("\n"))
        + "def compute_reward(state_dict, dof_pos, dof_vel, actions):\n"
        + indent(dedent(body).strip(), "    ")
    )


# (body, the line within it, part of the reason)
REFUSED = {
    "item": ("return dof_vel[:, 0] * dof_pos.max().item()", 1, "joins the environments"),
    "if on data": ("x = dof_pos.sum()\nif x > 0:\n    return dof_vel[:, 1]\nreturn dof_vel[:, 0]", 1, "joins"),
    "if on random": (
        "x = torch_rand_float(0.0, 1.0, (1, 1), 'cpu')\nif x > 2:\n    return dof_vel[:, 1]\nreturn dof_vel[:, 0]",
        2,
        "control flow",
    ),
    "mask read": ("r = dof_pos[:, 0] * 1\nr[r > 0] = r[r > 0] * 2\nreturn r", 2, "where a mask is True (torch.where"),
    "nonzero": ("r = dof_pos[:, 0] * 1\nr[torch.nonzero(r > 0)] = 2.0\nreturn r", 2, "control flow"),
    "index of the state": (
        "return dof_pos[:, (dof_pos.abs() * 2).long()[:, 0].clamp(0, 2)].sum(-1)",
        1,
        "picks single environments",
    ),
    "places of all environments": (
        "x = torch.zeros_like(dof_pos)\nx[torch.arange(len(x)).unsqueeze(1), dof_vel.argmax(1)] = 1.0\nreturn x[:, 0]",
        2,
        "environments twice",
    ),
    "first rows of several": (
        "f = state_dict['contact_forces'].reshape(-1, 3)\nreturn f[torch.arange(len(dof_pos)), 0]",
        2,
        "picks single environments",
    ),
    "table that all write": (
        "t = torch.zeros(3)\nt[dof_pos.argmax(1)] = 1.0\nreturn (dof_pos * t).sum(1)",
        2,
        "picks single environments",
    ),
    "every other number of three": (
        "f = dof_pos.reshape(-1)\nreturn torch.cat((f[::2], f[1::2]))[: len(dof_pos)]",
        2,
        "picks single environments",
    ),
    "mean over all": ("return dof_pos[:, 0] - dof_pos[:, 0].mean()", 1, "joins the environments"),
    "standardised": ("return (dof_pos / dof_pos.std(dim=0)).sum(-1)", 1, "joins the environments"),
    "sorted over all": ("return dof_pos[:, 0].sort().values", 1, "puts the environments"),
    "softmax over all": ("return torch.softmax(dof_pos[:, 0], dim=0)", 1, "joins the environments"),
    "dot over all": ("return dof_pos[:, 0] * torch.dot(dof_pos[:, 0], dof_vel[:, 0])", 1, "joins the environments"),
    "gram": ("return (dof_pos @ (dof_pos.T @ dof_vel)).sum(-1)", 1, "joins the environments"),
    "loss": ("return dof_pos[:, 0] * torch.nn.functional.mse_loss(dof_pos, dof_vel)", 1, "joins the environments"),
    "neighbour": ("return dof_pos[:, 0] - dof_pos.roll(1, dims=0)[:, 0]", 1, "picks single environments"),
    "scrambled": (
        "f = state_dict['contact_forces'].transpose(0, 1)\nreturn f.reshape(-1, 3).view(f.shape[1], -1).sum(-1)",
        2,
        "mixes the axis of environments",
    ),
    "flipped": ("return dof_pos.flip(0)[:, 0]", 1, "mixes the axis of environments"),
    "half of them": (
        "x = dof_pos[:, 0].clone()\nx[: x.shape[0] // 2] = 0.0\nreturn x",
        2,
        "picks single environments",
    ),
    "first": ("return dof_pos[:, 0] - dof_pos[0, 0]", 1, "picks single environments"),
    "one by one": ("return torch.stack([x.sum() for x in dof_pos])", 1, "picks single environments"),
    "numpy": ("return dof_vel[:, 0] * float(dof_pos.numpy().max())", 1, "out of torch (.numpy())"),
    "tolist": ("return torch.tensor([sum(x) for x in dof_pos.tolist()])", 1, "out of torch (.tolist())"),
    "tolist of a changed tensor": (
        "x = torch.ones(3)\nx[0] = dof_pos[0, 0]\nreturn dof_pos[:, 0] * sum(x.tolist())",
        2,
        "picks single environments",
    ),
    "numpy writes": (
        "x = torch.zeros_like(dof_pos)\nx.numpy().fill(5.0)\nreturn x[:, 0]",
        2,
        "out of torch (.numpy())",
    ),
    "apply": ("x = dof_pos.clone()\nx.apply_(lambda v: 2 * v)\nreturn x[:, 0]", 2, "for each number (.apply_())"),
    "map": ("x = dof_pos.clone()\nx.map_(dof_vel, lambda a, b: a + b)\nreturn x[:, 0]", 2, "each number (.map_())"),
    "half precision": ("return (dof_pos.half() * 2).sum(-1).float()", 1, "torch.float16"),
    "decomposition": ("return torch.linalg.svd(dof_pos.unsqueeze(-1))[1][:, 0]", 1, "uses _linalg_svd"),
    "bits": ("return dof_pos.view(torch.int32).float()[:, 0] * 0", 1, "bits"),
    "large": (
        "x = dof_pos\nfor _ in range(14):\n    x = torch.cat((x, x + 1), 1)\nreturn x.sum(-1)",
        3,
        "computes more",
    ),
    "numbered": ("return torch.logspace(0, 1, dof_pos.shape[0])", 1, "how many there are"),
    "written elsewhere": ("y = dof_pos.clone()\ny[0] = 5.0\nreturn y[:, 0]", 2, "picks single environments"),
    "chosen by what is unknown": ("m = dof_pos.mean()\nreturn dof_pos[:, 0] * (dof_pos[:, 1] > m)", 1, "joins"),
    "of a size by numbers": ("return dof_pos[:, 0] + 0 * len(dof_pos[dof_pos[:, 0] > 0])", 1, "mask"),
    "square root of n": ("n = len(dof_pos)\nreturn dof_pos[:, 0] / n ** 0.5", 2, "how many environments there are"),
    "branch on n": (
        "n = len(dof_pos)\nif n > 150 and n < 10000:\n    return dof_pos[:, 0]\nreturn dof_pos[:, 1]",
        4,
        "how many environments there are",
    ),
    "written through a view of a view": (
        "y = dof_pos.clone()\ny[: y.shape[0] // 2, 2] = 1.0\nreturn y[:, 2]",
        2,
        "picks single environments",
    ),
    "loop over n": (
        "x = dof_pos[:, 0]\nfor _ in range(dof_pos.shape[0] // 50):\n    x = x * 2\nreturn x",
        3,
        "how many environments there are",
    ),
    "component": ("return dof_pos[:, 0], {'a': dof_pos[:, 1], 'b': dof_pos.mean()}", 1, "component 'b', which joins"),
    "pairs": ("return torch.cdist(dof_pos, dof_pos).amin(dim=1)", 1, "uses _euclidean_dist"),
    "outer product": ("return torch.outer(dof_pos[:, 0], dof_vel[:, 0]).diagonal() * 1", 1, "environments twice"),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_untraceable_operations_are_refused_with_line_and_reason(name):
    body, line, reason = REFUSED[name]
    before = "from isaacgym.torch_utils import torch_rand_float" if "rand_float" in body else ""
    own, refused = traced(reward(body, before))
    assert "reward" not in own.programs and len(refused) == 1, refused
    assert refused[0].line == 10 + line and reason in refused[0].reason
    assert str(refused[0]) == f"mine.py:{10 + line}: in compute_reward: {refused[0].reason}"
    assert {"observation", "terminal", "command"} <= set(own.programs)  # the others are not concerned


# along the axis of environments, or beside it: by part of the reason
ALONG = {
    "picks single environments": (
        "i = torch.arange(len(dof_pos)) // 2\nreturn dof_pos[i, i * 0]",
        "return (dof_pos - dof_pos[torch.zeros(1, dtype=torch.long)])[:, 0]",
        "return dof_pos[torch.arange(len(dof_pos))[:, None], torch.tensor([True, False, True])].sum(1)",
        "return dof_pos.gather(0, (dof_vel * 0).long())[:, 0]",
        "return dof_pos.index_fill(0, torch.tensor([0]), 5.0)[:, 0]",
        "return dof_pos.scatter(0, (dof_vel * 0).long(), dof_vel)[:, 0]",
        "return dof_pos[:, 0] * dof_pos.reshape(-1)[:: len(dof_pos)].sum()",
        "a, *_ = dof_pos.split(50)\nreturn dof_pos[:, 0] * a[0, 0]",
        "return torch.nn.functional.pad(dof_pos, (-1, 0))[:, 0]",
        "return torch.nn.functional.pad(dof_pos, (0, 0, 1, 0))[:-1, 0]",
    ),
    "reads where a mask": (
        "c = state_dict['contact_forces']\nreturn c[:, torch.ones(c.shape[1], 3, dtype=torch.bool)].sum(1)",
    ),
    "writes several rows": (
        "x = dof_pos[:, 0] * 1\nx[x > -9] = dof_vel[:, 0]\nreturn x",
        "x = dof_pos * 1\nx[x[:, 0] > -9] = dof_vel\nreturn x[:, 0]",
        "x = dof_pos * 1\nx[torch.arange(len(x)) < 2] = torch.arange(6.0).view(2, 3)\nreturn x[:, 0]",
        "x = dof_pos * 1\nx.index_put_((x > 0,), torch.tensor(1.0), accumulate=True)\nreturn x[:, 0]",
    ),
    "adds to places": (
        "i = torch.arange(len(dof_pos))\nreturn dof_pos.index_put((i, i * 0), dof_vel[:, 0], accumulate=True)[:, 0]",
    ),
    "gathers from a part": (
        "f = state_dict['contact_forces']\nreturn f.gather(2, (f[:, :2, :1] * 0).long()).sum((1, 2))",
    ),
    "scatters to a part": (
        "f = state_dict['contact_forces']\nreturn f.scatter(2, (f[:, :2, :1] * 0).long(), 7.0).sum((1, 2))",
        "return dof_pos.scatter(1, (dof_pos[:, :1] * 0).long(), 7.0, reduce='add')[:, 0]",
    ),
    "mixes the axis of environments": (
        "return dof_pos[:, 0] * torch.diagonal(dof_pos).sum()",
        "return dof_pos[:, 0].unfold(0, 1, 1)[:, 0]",
        "return dof_pos[:, 0] * dof_pos.reshape(3, -1).sum()",
        "return torch.cat((dof_pos, dof_vel), 0)[: len(dof_pos), 0]",
        "return torch.cat((dof_pos.T, torch.zeros(3, 1)), 1)[0, : len(dof_pos)]",
        "return torch.cat((torch.zeros(len(dof_pos) - 1), torch.ones(1)))",
        "return dof_pos.repeat(2, 1)[::2, 0]",
        "return dof_pos.tril()[:, 0]",
        "return dof_pos.T.triu()[0]",
    ),
    "spreads numbers over": (
        "return torch.linspace(0, 1, 3 * len(dof_pos)).view(-1, 3)[:, 0]",
        "return torch.linspace(0, 5, len(dof_pos), dtype=torch.long) * dof_pos[:, 0]",
    ),
    "joins the environments": (
        "return torch.ops.aten._cdist_forward(dof_pos, torch.zeros(2, 3), 2.0, None).amin(1)",
        "return torch.nn.functional.layer_norm(dof_pos.T, (len(dof_pos),))[0]",
    ),
    "puts the environments": ("return dof_pos[:, 0] - dof_pos.median()",),
    "give the loss reduction='none'": ("return dof_pos[:, 0] * torch.nn.functional.huber_loss(dof_pos, dof_vel)",),
    "among those of all environments": ("return torch.isin(dof_pos[:, 0], dof_vel[:, 0]).float()",),
}


@pytest.mark.parametrize("reason", list(ALONG))
def test_every_check_of_an_axis_refuses_with_its_reason(reason):
    for body in ALONG[reason]:
        own, refused = traced(reward(body))
        assert len(refused) == 1 and reason in refused[0].reason and "reward" not in own.programs, (body, refused)


# what is computed and not returned, or not needed for what is
UNUSED = {
    "mean": "mean = dof_pos.mean()\nreturn dof_pos[:, 0]",
    "singular values": "s = torch.linalg.svd(dof_pos.unsqueeze(-1))[1]\nreturn dof_pos[:, 0]",
    "overwritten in place": "x = dof_pos.clone()\nx -= x.mean()\nx.copy_(dof_vel)\nreturn x[:, 0]",
    "other columns": "x = dof_pos.clone()\nx[:, 2] = x[:, 2] - x[:, 2].mean()\nreturn x[:, 0]",
}


@pytest.mark.parametrize("name", list(UNUSED))
def test_untraceable_operations_with_unused_results_are_ignored(name):
    own, refused = traced(reward(UNUSED[name]))
    assert not refused
    assert all(node.op != "unknown" for node in own.programs["reward"].nodes)


def test_untraceable_components_may_be_omitted():
    code = reward("return dof_pos[:, 0], {'mean': dof_pos.mean(), 'part': dof_pos[:, 1], 'low': dof_pos.min()}")
    task = FakeTask(6)
    checked = shaping(code, task=task, n=6)
    own, refused = trace.trace(checked, task.state, task.constants, task, trace.Memo(incomplete=True))
    assert not refused and own.components == ("mean", "part", "low")
    assert set(own.programs["reward"].outputs) == {"value", "component1"}


def test_library_random_numbers_and_memory_are_refused():
    for body, before, line, reason in [
        ("return dof_pos[:, 0] + torch.randperm(dof_pos.shape[0]) * 0", "", 11, "library's generator"),
        ("return dof_pos[:, 0] + torch.poisson(dof_pos[:, 0].abs()) * 0", "", 11, "library's generator"),
        ("return dof_pos[:, 0] * random.random()", "import random", 1, "library's generator"),
        ("global last\nlast = dof_pos[:, 0]\nreturn last", "last = None", 10, "earlier call"),
        ("seen.append(1)\nreturn dof_pos[:, 0] * len(seen)", "seen = []", 10, "earlier call"),
    ]:
        own, refused = traced(reward(body, before))
        assert [(x.function.type, x.line) for x in refused if "reward" in x.function.type] == [("compute_reward", line)]
        assert reason in refused[0].reason and "reward" not in own.programs


def test_memory_refuses_every_function_that_uses_it():
    code = """
    last = None
    def compute_reward(dof_pos):
        global last
        last = dof_pos[:, 0].clone()
        return dof_pos[:, 0]
    def compute_terminal(dof_pos):
        return dof_pos[:, 0] > (9.0 if last is None else 1e3)
    """
    own, refused = traced(code)
    assert {x.function.type for x in refused} == {"compute_reward", "compute_terminal"}
    assert set(own.programs) == {"command", "observation"}


def test_values_per_environment_must_come_from_the_state():
    task = FakeTask(trace.ROWS)
    code = f"TABLE = torch.arange({trace.ROWS}.0)\ndef compute_reward(dof_pos):\n    return dof_pos[:, 0] + TABLE\n"
    own, refused = trace.trace(shaping(code, task=task, n=trace.ROWS), task.state, task.constants, task)
    assert "do not come from the state" in refused[0].reason and refused[0].line == 3
    # of another length it cannot even be added to the sample
    own, refused = traced("TABLE = torch.arange(6.0)\ndef compute_reward(dof_pos):\n    return dof_pos[:, 0] + TABLE\n")
    assert f"with {trace.ROWS} environments" in refused[0].reason and "reward" not in own.programs


def test_try_block_does_not_hide_a_failing_rule(monkeypatch):
    from envcoder_bench.compile.values import RULES

    def broken(*_):
        raise IndexError("a fault of the rule's own")

    monkeypatch.setitem(RULES, "tanh", broken)
    body = "try:\n    return torch.tanh(dof_pos[:, 0])\nexcept IndexError:\n    return dof_pos[:, 0] * 0"
    _, refused = traced(reward(body))
    assert refused[0].line == 12 and "IndexError: a fault of the rule's own" in refused[0].reason


def test_rule_with_another_shape_than_torch_is_refused(monkeypatch):
    from envcoder_bench.compile.values import RULES

    monkeypatch.setitem(RULES, "tanh", lambda values, arguments, result: values.value(arguments["self"]))
    monkeypatch.setitem(RULES, "sin", lambda values, arguments, result: values.numbers(torch.ones(2)))
    assert not traced(reward("return torch.tanh(dof_pos[:, 0])"))[1]
    _, refused = traced(reward("return torch.sin(dof_pos[:, 0])"))
    assert "makes a tensor of shape" in refused[0].reason


def test_programs_beyond_the_node_limit_are_refused(monkeypatch):
    monkeypatch.setattr(program, "MAX_NODES", 60)
    own, refused = traced(reward("x = dof_pos\nfor _ in range(40):\n    x = x.sin()\nreturn x[:, 0]"))
    assert refused[0].reason == "computes more than 60 numbers for one environment" and refused[0].line == 13
    own, refused = traced(reward("return dof_pos[:, 0] * 2"))
    assert "reward" in own.programs


def test_in_place_changes_of_global_tensors_are_refused():
    for line in ("w *= 1.0", "w[0] = 1.0", "w.view(3)[1:].add_(0.0)", "torch.mul(w, 1.0, out=w)"):
        body = f"w = [WEIGHTS][0]\n{line}\nreturn (dof_pos * w).sum(-1)"
        code = reward(body, "WEIGHTS = torch.ones(3)")
        _, refused = traced(code, known=False)
        assert refused[0].reason == "changes a tensor that outlives the call" and refused[0].line == 12
        assert traced(code)[1][0].reason == "may depend on what an earlier call has kept"


def test_large_constants_are_refused():
    _, refused = traced(reward("return dof_pos[:, 0] + BIG[0, 0]", "BIG = torch.zeros(100, 50)"))
    assert refused[0].reason == "uses a constant of 5000 numbers"


ACCEPTED = {
    "copy of the state": ("s = dict(state_dict)\ns['dof_pos'] = s['dof_pos'] * 2\nreturn s['dof_pos'].sum(-1)", ""),
    "copy method": ("return state_dict.copy()['dof_pos'][:, 0]", ""),
    "constants of the task": ("return dof_pos[:, 0] * state_dict['dof_vel_scale'].item()", ""),
    "feet": ("return state_dict['contact_forces'][:, state_dict['feet_indices'], 2].sum(-1)", ""),
    "feet as numbers": (
        "i = state_dict['feet_indices'].tolist()\nreturn state_dict['contact_forces'][:, i, 2].sum(-1)",
        "",
    ),
    "constants of the call as numbers": (
        "w = torch.tensor([1.0, 2.0, 3.0])\nw[1] = 5.0\na = w.tolist()\nw[1] = 7.0\n"
        "return sum(x * dof_pos[:, i] for i, x in enumerate(a)) * torch.arange(4).tolist()[3] + w[1]",
        "",
    ),
    "numpy constants": (
        "return (dof_pos * torch.from_numpy(W)).sum(-1).float()",
        "import numpy as np\nW = np.array([1.0, 2.0, 3.0])",
    ),
    "scripted": (
        "return near(dof_pos, 0.5)",
        "@torch.jit.script\ndef near(x: Tensor, w: float) -> Tensor:\n    return torch.exp(-x.square().sum(-1) / w)",
    ),
    "repeated constants": ("return torch.ones(1).repeat(len(dof_pos)) * dof_pos[:, 0]", ""),
    "number of environments": ("z = torch.zeros(dof_pos.shape[0], 3)\nz[:, 1] = 1.0\nreturn (z * dof_pos).sum(-1)", ""),
    "in place": ("r = torch.zeros_like(dof_pos[:, 0])\nr += dof_pos[:, 0]\nr *= 2\nr[r > 0.5] = 0.5\nreturn r", ""),
    "default": ("x = state_dict.get('nothing', dof_vel)\nreturn x[:, 0]", ""),
    "one hot of constants": ("return (torch.nn.functional.one_hot(torch.tensor([1]), 3) * dof_pos).sum(-1)", ""),
    "flattened batch": (
        "f = state_dict['contact_forces']\nreturn f.reshape(-1, 3).norm(dim=-1).view(f.shape[0], -1).sum(-1)",
        "",
    ),
    "module of layers": ("return NORM(dof_pos).sum(-1)", "NORM = torch.nn.Tanh()"),
    "unused memory": (
        "r = []\nr.append(dof_pos[:, 0])\nr.append(dof_vel[:, 0])\nreturn torch.stack(r, -1).sum(-1)",
        "",
    ),
    "zip": ("return sum(a * b for a, b in zip(dof_pos.unbind(-1), dof_vel.unbind(-1)))", ""),
    "try": ("try:\n    x = state_dict['missing']\nexcept KeyError:\n    x = dof_pos\nreturn x[:, 0]", ""),
}


@pytest.mark.parametrize("name", list(ACCEPTED))
def test_common_code_is_traced(name):
    body, before = ACCEPTED[name]
    own, refused = traced(reward(body, before))
    assert not refused and set(own.programs) == {"command", "reward", "observation", "terminal"}


def test_shared_functions_are_traced_once(monkeypatch):
    task, memo, calls = FakeTask(4), trace.Memo(), []
    original = trace.SampleState.record
    monkeypatch.setattr(trace.SampleState, "record", lambda *given: calls.append(given[1].stage) or original(*given))
    own = shaping("def compute_goal(commands):\n    return {'commands': commands * 0.5}\n", task=task)
    for _ in range(3):
        trace.trace(own, task.state, task.constants, task, memo)
    assert sorted(calls) == ["goal", "observation", "reward", "terminal"]


def test_tracing_leaves_state_and_torch_settings_unchanged():
    task = FakeTask(6)
    before = {key: x.clone() for key, x in task.state.items()}
    own = shaping(reward("return torch.softmax(dof_pos, -1)[:, 0]"), task=task, n=6)
    generator = torch.get_rng_state()
    trace.trace(own, task.state, task.constants, task)
    assert all(torch.equal(before[key], x) for key, x in task.state.items())
    assert torch.equal(generator, torch.get_rng_state()) and torch.is_grad_enabled()
