"""Answers of the jail are validated before a program is built."""

import json
import math
import struct
from dataclasses import replace

import pytest
import torch
from attacks import FORGERIES
from jail_fakes import NUM_ENVS, make_task, state_of
from tracing_fakes import Compiled, make_state
from tracing_operations import every_node

from envcoder_bench.compile.c_code import write_c
from envcoder_bench.compile.interpret import BINARY, UNARY, Interpreter
from envcoder_bench.compile.program import COMPARISONS, OPERATIONS, Node, Output, Program
from envcoder_bench.core import stream
from envcoder_bench.jail import wire
from envcoder_bench.jail.rebuild import MAX_LIVE, MAX_NODES, Contract, clean, most_live, rebuild
from envcoder_bench.shaping.contract import CandidateError, Dicts, Fault


@pytest.fixture(scope="module")
def contract():
    task = make_task()
    return Contract.of(task, state_of(task), 12)


def packed(text: str) -> bytes:
    return struct.pack("!I", len(text)) + text.encode()


def answer(nodes, outputs=None, name="compute_reward", components=(), action_dim=12):
    function = {"line": 1, "nodes": nodes, "outputs": outputs or {"value": [[len(nodes) - 1], nodes[-1][1]]}}
    return wire.pack(
        {"candidate": {"functions": {name: function}, "action_dim": action_dim, "components": list(components)}}
    )


def load(column=0, name="dof_pos", kind="f32"):
    return ["load", kind, [], 0, name, column]


def const(value, kind="f32"):
    return ["const", kind, [], value, "", 0]


def made(content, contract):
    return rebuild(content, "one", "one.py", "x = 1\n" * 9, contract)


@pytest.mark.parametrize("name", FORGERIES)
def test_forgeries_are_refused(contract, name):
    with pytest.raises(CandidateError, match=r"refused|limit|names a component") as raised:
        made(packed(FORGERIES[name]), contract)
    assert str(raised.value).startswith("one.py") and str(raised.value).isprintable()


DICTS = {"values": {"rewards": {"up": 2.0}}, "lines": {"rewards": {"": 1, "up": 1}}, "functions": ["compute_reward"]}


ERROR = {"message": "no", "line": 2, "function": "compute_reward", "kind": "raised", "remedy": "mend it"}


def test_faults_come_back_as_data(contract):
    with pytest.raises(CandidateError) as raised:
        made(wire.pack({"error": ERROR}), contract)
    assert raised.value.fault == Fault("no", "one.py", 2, "compute_reward", "raised", "mend it")


@pytest.mark.parametrize(
    "part", [{"kind": "duplicate"}, {"kind": "made up"}, {"kind": ["raised"]}, {"message": ""}, {"file": "/etc/x"}]
)
def test_forged_faults_are_refused(contract, part):
    with pytest.raises(CandidateError, match="its answer from the jail was refused"):
        made(wire.pack({"error": {**ERROR, **part}}), contract)


def test_a_fault_of_the_jail_names_no_place_of_its_own(contract):
    forged = {"message": "/etc/other.py:1: in f: \x1b[2J", "line": 99, "function": "f", "remedy": "/etc/\u202ex"}
    with pytest.raises(CandidateError) as raised:
        made(wire.pack({"error": {**ERROR, **forged}}), contract)
    fault = raised.value.fault
    assert (fault.place, fault.function) == ("one.py", "") and str(fault).isprintable() and "/etc" not in str(fault)


def test_dicts_come_back_as_data_only_for_tasks_that_take_them(contract):
    content = wire.pack({"dicts": {**DICTS, "values": {"rewards": {"up": {"x": [0, [1, None]]}}}}})
    dicts = made(content, replace(contract, reads_dicts=True)).dicts
    assert dicts == Dicts({"rewards": {"up": {"x": (0, (1, None))}}}, DICTS["lines"], ("compute_reward",))
    with pytest.raises(CandidateError, match="neither a candidate nor an error"):
        made(content, contract)


@pytest.mark.parametrize(
    "part",
    [
        {"values": {}}, {"values": {"torch": {"up": 1}}}, {"values": {"rewards": {"up": "x"}}}, {"values": None},
        {"values": {"rewards": {"up": 1e7}}}, {"values": {"rewards": 1}}, {"lines": {}}, {"functions": ["print"]},
        {"lines": {"rewards": {"up": 1}}}, {"lines": {"rewards": {"": 99}}}, {"lines": {"rewards": 1}},
        {"functions": [["x"]]}, {"more": 1},
    ],
)  # fmt: skip
def test_forged_dicts_are_refused(contract, part):
    with pytest.raises(CandidateError, match="its answer from the jail was refused"):
        made(wire.pack({"dicts": {**DICTS, **part}}), replace(contract, reads_dicts=True))


@pytest.mark.parametrize(
    "node, told",
    [
        (load(kind="i64"), "another kind of number"),
        (load(12), "reads beyond dof_pos"),
        (load(-1), "reads beyond dof_pos"),
        (load(0, "secret"), "unknown key of the state"),
        (const(2**31, "i32"), "not a number of kind i32"),
        (const(2**63, "i64"), "not a number of kind i64"),
        (const(-1, "u8"), "not a number of kind u8"),
        (const(2, "b"), "not a number of kind b"),
        (const(1.5, "i64"), "not a number of kind i64"),
        (const(True, "f32"), "is not a number"),
        (const(10**39, "i64"), "not a number of kind i64"),
        (["lane", "f32", [], 0, "", 0], "does not take"),
        (["sin", "f32", [], 0, "", 0], "does not take"),
        (["lane", "i64", [], 1, "", 0], "has a value"),
        (["lane", "i64", [], 0, "dof_pos", 0], "has a name"),
    ],
)
def test_invalid_nodes_are_refused(contract, node, told):
    with pytest.raises(CandidateError, match=told):
        made(answer([node]), contract)


@pytest.mark.parametrize("digits", ["9" * 41, "0." + "9" * 41])
def test_too_long_numbers_are_refused(contract, digits):
    text = json.dumps({"error": {"message": "x", "line": 0, "function": ""}}).replace("0", digits)
    with pytest.raises(CandidateError, match="not valid JSON"):
        made(packed(text), contract)


@pytest.mark.parametrize("cut", [0, 1, 3, 4, 5, -1])
def test_truncated_answers_are_refused(contract, cut):
    with pytest.raises(CandidateError, match="refused: wrong length"):
        made(answer([load()])[:cut], contract)


def test_bytes_after_an_answer_are_refused(contract):
    with pytest.raises(CandidateError, match="refused: wrong length"):
        made(answer([load()]) + b" ", contract)


def test_single_changes_of_an_answer_are_refused_or_harmless(contract):
    """Each part of a valid answer is replaced by values of other types."""
    honest = json.loads(answer([load(), const(2.0), ["mul", "f32", [0, 1], 0, "", 0]])[4:])
    strange = [None, True, -1, 1.5, 10**30, math.nan, "", "x", "sin", "b", [], {}, [[]], "dof_pos", 2**31]

    def paths(value, at=()):
        yield at
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, own in items:
            yield from paths(own, (*at, key))

    def changed(value, at, new):
        if not at:
            return new
        copy = dict(value) if isinstance(value, dict) else list(value)
        copy[at[0]] = changed(value[at[0]], at[1:], new)
        return copy

    taken = 0
    for at in paths(honest):
        for new in strange:
            text = json.dumps(changed(honest, at, new))
            try:
                candidate = made(packed(text), contract)
            except CandidateError:
                continue
            taken += 1
            state = state_of(make_task())
            for function in candidate.functions.values():
                write_c(function.program, {"value": "O[{place}] = {value};"})
                value = function.call(state, torch.zeros(NUM_ENVS, 12))
                assert value.shape == (NUM_ENVS,)
    assert taken > 3  # other constants, columns and lines are valid


ACCEPTED = (*OPERATIONS, *COMPARISONS, "const", "load", "lane", "rows", "seed", "step", "cast", "select")


def test_operations_can_be_compiled_and_interpreted():
    assert set(OPERATIONS) - {*UNARY, *BINARY} == {"floordiv", "shl", "shr"}


@pytest.mark.slow
def test_accepted_operations_agree_compiled_and_interpreted(contract):
    """The compiler and the interpreter accept all accepted operations and compute the same numbers."""
    programs, found = [], set()
    for op in ACCEPTED:
        for nodes in every_node(op):
            try:
                candidate = made(answer([*nodes, ["cast", "f32", [len(nodes) - 1], 0, "", 0]]), contract)
            except CandidateError:
                continue
            programs.append(candidate.functions["compute_reward"].program)
            found.add(op)
    assert found == set(ACCEPTED) and len(programs) > 150
    whole = Program()
    outputs = []
    for program in programs:
        if any(node.op == "load" for node in program.nodes):
            continue  # reads the state of another task than the kernel's
        moved = {}
        for place, node in enumerate(program.nodes):
            moved[place] = whole._append(node._replace(args=tuple(moved[arg] for arg in node.args)))
        outputs.append(whole.cast(moved[len(program.nodes) - 1], "f64"))
    whole.outputs = {"floats": Output(outputs, "f64"), "wholes": Output([], "i64")}
    kernel = Compiled([whole], 3, seeds=[5]).run(make_state(3), step=2)[0].floats
    with stream.use(5, 2, 0):
        value = Interpreter(whole)({}, torch.zeros(3, 1))["floats"]
    assert torch.allclose(kernel, value, rtol=1e-6, atol=1e-7, equal_nan=True)


def test_node_and_width_limits_are_enforced(contract):
    with pytest.raises(CandidateError, match="more than"):
        made(answer([load()] * (MAX_NODES + 1)), contract)
    sines = [load(), *(["sin", "f32", [k], 0, "", 0] for k in range(MAX_NODES - 1))]
    assert len(made(answer(sines), contract).functions["compute_reward"].program.nodes) == MAX_NODES
    wide = {"value": [[0] * 1025, "f32"]}
    with pytest.raises(CandidateError, match="more than 1024 numbers"):
        made(answer([load()], wide, "compute_observation"), contract)
    wide["value"][0].pop()
    assert made(answer([load()], wide, "compute_observation"), contract)


def test_live_numbers_are_limited(contract):
    def kept(count):
        sines = [["sin", "f32", [0], 0, "", 0] for _ in range(count)]
        sums = [["add", "f32", [count + k, count - k], 0, "", 0] for k in range(count)]
        return made(answer([load(), *sines, *sums]), contract).functions["compute_reward"].program

    assert most_live(kept(7)) == 7
    assert most_live(kept(MAX_LIVE)) == MAX_LIVE
    with pytest.raises(CandidateError, match="at once"):
        kept(MAX_LIVE + 1)
    chain = Program([Node("load", "f32", name="dof_pos"), *(Node("sin", "f32", (k,)) for k in range(50))])
    chain.outputs["value"] = Output([50], "f32")
    assert most_live(chain) == 1


@pytest.mark.parametrize(
    "name, outputs",
    [
        ("compute_dof_target", {"value": [[0] * 11, "f32"]}),
        ("compute_torque", {"value": [[0] * 13, "f32"]}),
        ("compute_terminal", {"value": [[0, 0], "f32"]}),
        ("compute_initial_state", {"dof_pos": [[0] * 11, "f32"]}),
        ("compute_initial_state", {"commands": [[0] * 3, "f32"]}),
        ("compute_initial_state", {}),
        ("compute_goal", {"dof_pos": [[0] * 12, "f32"]}),
        ("compute_goal", {"commands": [[], "f32"]}),
        ("compute_observation", {"value": [[], "f32"]}),
        ("compute_reward", {"value": [[0], "f32"], "component0": [[0], "f32"]}),
    ],
)
def test_results_must_match_the_sizes_of_the_contract(contract, name, outputs):
    function = {"line": 1, "nodes": [load()], "outputs": outputs}
    whole = {"candidate": {"functions": {name: function}, "action_dim": 12, "components": []}}
    with pytest.raises(CandidateError, match="refused"):
        made(wire.pack(whole), contract)


def test_unexpected_functions_are_refused():
    """An action function would widen the actions that a reward may read."""
    task = make_task()
    rewards = Contract.of(task, state_of(task), 12, ["compute_reward"])
    assert made(answer([load()]), rewards)
    with pytest.raises(CandidateError, match="unexpected function"):
        made(answer([load()], name="compute_terminal"), rewards)


def test_valid_answer_is_rebuilt(contract):
    parts = {"root_states": [[0] * 13, "f32"], "dof_pos": [[1] * 12, "f32"]}
    candidate = made(answer([load(), const(-0.0)], parts, "compute_initial_state"), contract)
    value = candidate.functions["compute_initial_state"].call(state_of(make_task()), torch.zeros(NUM_ENVS, 12))
    assert value["root_states"].shape == (NUM_ENVS, 13) and value["dof_pos"].shape == (NUM_ENVS, 12)
    assert math.copysign(1.0, value["dof_pos"][0, 0].item()) == -1.0
    for number in (math.inf, -math.inf, 1e-45, 0.1):
        node = made(answer([const(number)]), contract).functions["compute_reward"].program.nodes[0]
        assert node.value == number
    assert math.isnan(made(answer([const(math.nan)]), contract).functions["compute_reward"].program.nodes[0].value)


def test_error_keeps_line_and_function(contract):
    told = {**ERROR, "message": "no\x1b[31m good\n", "line": 3, "remedy": ""}
    with pytest.raises(CandidateError) as raised:
        made(wire.pack({"error": told}), contract)
    assert str(raised.value) == "one.py:3: in compute_reward: no\\u001b[31m good"
    for line, function in ((10**6, "os.system"), (-1, 7), (None, None), (True, [])):
        with pytest.raises(CandidateError) as raised:
            made(wire.pack({"error": {**told, "line": line, "function": function}}), contract)
        assert str(raised.value).startswith("one.py: no")


def test_component_names_are_sanitized(contract):
    given = ["v_xy → cmd", "|v_z|²", "é", "<b>", "a.b: c/d (1)", "../x", "x→y", "x²y", "x_y"]
    given += ["a" * 64, "a" * 99, "日本"]
    outputs = {"value": [[0], "f32"], **{f"component{i}": [[0], "f32"] for i in range(len(given))}}
    call = made(answer([load()], outputs, components=given), contract).functions["compute_reward"].call
    _, components = call(state_of(make_task()), torch.zeros(NUM_ENVS, 12))
    expected = ["v_xy _ cmd", "_v_z_2", "e", "_b_", "a.b: c/d (1)", "_./x", "x_y", "x2y", "x_y 2", "a" * 64]
    assert list(components) == [*expected, "a" * 60 + " 2", "__"]
    for strange in ("", "a\nb", "\x1b[31m", "\u202e"):
        with pytest.raises(CandidateError, match="names a component"):
            made(answer([load()], {**outputs}, components=[strange]), contract)


@pytest.mark.parametrize(
    "message, told",
    [
        ("cannot import name 'x' from 'torch' (/home/me/env/lib/torch/__init__.py)", "(__init__.py)"),
        ("[Errno 1] Operation not permitted: '/home/me/runs/mine.py'", "permitted: 'mine.py'"),
        ('File "/home/me/my files/mine.py", line 3', '"my files/mine.py", line 3'),
        ("1.5 m/s, 3 N/m/s, and/or; see https://a.org/b/c", "1.5 m/s, 3 N/m/s, and/or; see https://a.org/b/c"),
    ],
)
def test_messages_have_no_absolute_paths(message, told):
    assert told in clean(message) and "/home" not in clean(message)


def test_messages_are_sanitized():
    assert clean("a\tb\x00c\u202e\u2028d\ud800") == r"a b\u0000c\u202e d\ud800"
    assert len(clean("x" * 10_000)) == 600 and clean("x" * 10_000).endswith("...")
    assert clean(None) == ""


@pytest.mark.slow
def test_programs_of_the_tracer_are_accepted(contract):
    """All programs of the table of operators pass the check of kinds."""
    from tracing_fakes import function, record
    from tracing_table import TABLE

    from envcoder_bench.compile.program import KINDS, to_plain
    from envcoder_bench.jail.rebuild import _nodes

    state = make_state(20)
    reads = {key: (KINDS[x.dtype], math.prod(x.shape[1:])) for key, x in state.items()}
    count = 0
    for body in TABLE:
        program = record(function(body), state)
        if isinstance(program, Program):
            plain = json.loads(json.dumps(to_plain(program)))
            assert [node._replace(value=0) for node in _nodes(plain["nodes"], reads)] == [
                node._replace(value=0) for node in program.nodes
            ], body
            count += 1
    assert count > 300
