"""Attacks on the jail fail in the confined process alone, without the list of imports."""

import contextlib
import os
import re
import socket
import sys
import tracemalloc

import pytest
import torch
import warm_jail
from attacks import ATTACKS, FORGERIES, FORGERY, HARMLESS, LIBRARY
from jail_fakes import NUM_ENVS, judged, make_task, state_of

from envcoder_bench.jail import client
from envcoder_bench.jail.confine import Limits
from envcoder_bench.shaping.contract import Candidate, Fault
from envcoder_bench.shaping.state import StateDict

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the jail needs Linux"),
]
LIMITS = Limits(memory=400 << 20, cpu=1, wall=60.0)
KEY = "sk-canary-do-not-tell"
BY_NAME = {f"{one.kind}: {one.name}": one for one in ATTACKS}


class World:
    """The targets of attacks: a folder for each, listening sockets, and this process with a key in its environment."""

    def __init__(self, folder):
        self.folder = folder
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.port = self.tcp.getsockname()[1]
        self.udp.bind(("127.0.0.1", self.port))
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind(str(folder / "unix"))
        self.unix.listen()
        for one in (self.tcp, self.udp, self.unix):
            one.setblocking(False)
        self.verdicts = {}

    def canary(self, name):
        return self.folder / re.sub(r"\W+", "_", name)

    def code(self, name, text):
        home = self.canary(name)
        home.mkdir()
        (home / "secret").write_text("a secret", encoding="utf-8")
        for word, value in (("CANARY", home), ("PORT", self.port), ("UNIX", self.folder / "unix")):
            text = re.sub(rf"\b{word}\b", str(value), text)
        return re.sub(r"\bPARENT\b", str(os.getpid()), text)

    def untouched(self, name):
        home = self.canary(name)
        held = {path.name: path.read_text(encoding="utf-8") for path in home.iterdir()}
        return held == {"secret": "a secret"} and home.stat().st_mode == self.folder.stat().st_mode | 0o055

    def heard(self):
        told = []
        for one in (self.tcp, self.udp, self.unix):
            with contextlib.suppress(BlockingIOError):
                told.append(one.recv(1) if one is self.udp else one.accept())
        return told


def forged(text):
    return FORGERY.replace("{text}", repr(text.encode()))


# bytes that are written to the pipe in place of an answer; files of more than 100,000 characters are not examined
FORGED = {name: forged(text) for name, text in FORGERIES.items() if len(forged(text)) < 100_000}
FORGED["seven megabytes"] = FORGERY.replace("{text}", 'b"x" * (7 << 20)')
LIAR = forged(FORGERIES["beyond_the_state"].replace("100000", "3"))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Return a world in which all files have been examined."""
    world = World(tmp_path_factory.mktemp("world"))
    sources = {**{name: one.code for name, one in BY_NAME.items()}, **FORGED, "liar": LIAR, **HARMLESS}
    before = {**os.environ, "OPENAI_API_KEY": KEY}
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("OPENAI_API_KEY", KEY)
        texts = {name: world.code(name, text) for name, text in sources.items()}
        world.verdicts = judged(texts, LIMITS)
        assert dict(os.environ) == before
    return world


def text_of(verdict, file):
    """Return the reason as a user reads it."""
    text = str(verdict)
    assert text.startswith(f"{file}:") and text.isprintable() and len(text) < 900
    assert KEY not in text and "a secret" not in text
    return text


@pytest.mark.parametrize("name", BY_NAME)
def test_attack_is_contained(world, name):
    verdict = world.verdicts[name]
    assert world.untouched(name)
    if isinstance(verdict, Fault):
        assert re.search(BY_NAME[name].reason, text_of(verdict, f"{name}.py")), verdict
    else:
        assert_harmless(verdict)


def assert_harmless(candidate):
    """Check that a candidate consists of programs whose results have the task's shapes."""
    assert isinstance(candidate, Candidate)
    task = make_task()
    state = state_of(task)
    actions = torch.zeros(NUM_ENVS, candidate.action_dim or task.default_action_dim)
    for function in candidate.functions.values():
        assert type(function.call).__module__ == "envcoder_bench.compile.interpret"
        made = function.call(StateDict({**state, "actions": actions}), actions)
        parts = made if isinstance(made, tuple) else (made,)
        assert all(len(x) == NUM_ENVS for x in parts if isinstance(x, torch.Tensor))


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless_lookalike_passes(world, name):
    verdict = world.verdicts[name]
    assert isinstance(verdict, Candidate), str(verdict)
    assert_harmless(verdict)


@pytest.mark.parametrize("name, told", [("keys", "{}"), ("keys_of_the_c_library", "None")])
def test_environment_has_no_keys(world, name, told):
    verdict = world.verdicts[f"leaks: {name}"]
    assert verdict.message == f"raised RuntimeError: {told} while the file was loaded"


def test_attacks_make_no_connections(world):
    assert set(world.verdicts) == {*BY_NAME, *HARMLESS, *FORGED, "liar"}
    assert world.heard() == []


def test_attacks_with_hidden_effects_must_fail(world):
    """Attacks whose success is not visible in the answer must fail."""
    must = ("files", "other processes", "the network", "large graphs")
    passed = [name for name, one in BY_NAME.items() if one.kind in must and not isinstance(world.verdicts[name], Fault)]
    assert passed == []


@pytest.mark.parametrize("name", LIBRARY)
def test_kernel_refuses_calls_of_the_c_library(world, name):
    # system() returns 127 << 8 if it cannot start a shell
    assert re.search(r"result (-1|32512) ", str(world.verdicts[f"machine code and system calls: {name}"]))


@pytest.mark.parametrize("name", FORGED)
def test_forged_answers_are_refused(world, name):
    verdict = world.verdicts[name]
    assert isinstance(verdict, Fault) and world.untouched(name)
    assert re.search(r"refused|limit|more than|names a component", text_of(verdict, f"{name}.py")), verdict


def test_forged_candidate_is_a_valid_program(world):
    """A process that returns a forged answer can only return another valid program."""
    verdict = world.verdicts["liar"]
    assert_harmless(verdict)
    state = state_of(make_task())
    reward = verdict.functions["compute_reward"].call(state, torch.zeros(NUM_ENVS, 12))
    assert torch.equal(reward, state["dof_pos"][:, 3])


def test_answers_are_processed_as_they_arrive(monkeypatch):
    """Six answers of 5 MB, of which each takes 25 MB while it is read, take 35 MB and not 50."""
    monkeypatch.setattr(client, "_start", warm_jail.start)  # the confinement is not the subject
    told = '{"error": {"message": "%s", "line": 1, "function": "", "kind": "invalid", "remedy": ""}}'
    large = FORGERY.replace("{text}", f"{told % 'NAME'!r}.encode().replace(b'NAME', b'x' * 5_000_000)")
    make_task()
    tracemalloc.start()
    try:
        verdicts = judged({f"large{k}": large for k in range(6)}, LIMITS)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert all(verdict.message.endswith("x...") for verdict in verdicts.values())
    assert list(verdicts) == [f"large{k}" for k in range(6)]
    assert peak < 35_000_000, peak
