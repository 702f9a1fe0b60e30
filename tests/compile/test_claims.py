"""Claims on kernels between processes; open files of one process exclude each other in the same way."""

import threading

import pytest
import torch

from envcoder_bench.compile import building, native

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(native, "cache_folder", lambda: tmp_path)
    return tmp_path


@pytest.fixture
def compiler(monkeypatch):
    """A compiler that only notes what it compiles; kernels that end with ! have errors."""
    made = []

    def build(codes, target):
        made.append(list(codes))
        return ["wrong" if code.endswith("!") else "" for code in codes]

    monkeypatch.setattr(building, "build", build)
    built = lambda: {code for codes in made for code in codes if not code.endswith("!")}  # noqa: E731
    monkeypatch.setattr(native, "_missing", lambda codes, device: [code for code in codes if code not in built()])
    monkeypatch.setattr(native, "POLL", 0.01)
    return made


def test_only_one_takes_a_name_until_it_is_released(own_cache):
    release, other = native.take_claim("a"), native.take_claim("b")
    assert release is not None and other is not None and native.take_claim("a") is None
    release()
    again = native.take_claim("a")
    assert again is not None
    again()
    other()
    assert not list((own_cache / native.CLAIMS).iterdir())


def test_every_claim_succeeds_where_no_file_can_be_made(own_cache, monkeypatch):
    (own_cache / "file").write_text("")
    monkeypatch.setattr(native, "cache_folder", lambda: own_cache / "file")
    releases = [native.take_claim("a"), native.take_claim("a")]
    assert all(release is not None for release in releases)
    for release in releases:
        release()


def test_every_claim_succeeds_on_a_file_system_without_locks(monkeypatch):
    def acquire(self, timeout):
        raise NotImplementedError("FileSystem does not appear to support flock")

    monkeypatch.setattr(native.FileLock, "acquire", acquire)
    assert native.take_claim("a") is not None and native.take_claim("a") is not None


def test_kernels_of_another_process_are_left_to_it(compiler, monkeypatch):
    taken, take_claim = {}, native.take_claim
    monkeypatch.setattr(native, "take_claim", lambda name: taken.setdefault(name, take_claim(name)))
    assert native.build(["a", "b"], CPU) == ["", ""]
    held, other = take_claim(next(iter(taken))), []  # that of a
    monkeypatch.setattr(native, "take_claim", take_claim)
    compiler.clear()
    thread = threading.Thread(target=lambda: other.append(native.build(["a", "b!", "c"], CPU)))
    thread.start()
    while not compiler:
        pass
    assert thread.is_alive() and compiler == [["b!", "c"]]
    compiler.append(["a"])  # the other process has compiled it
    held()
    thread.join()
    assert other == [["", "wrong", ""]] and compiler == [["b!", "c"], ["a"]]


def test_kernels_are_compiled_after_waiting_long_for_another_process(compiler, monkeypatch):
    monkeypatch.setattr(native, "take_claim", lambda name: None)
    monkeypatch.setattr(native, "WAIT", 0.05)
    assert native.build(["a"], CPU) == [""] and compiler == [["a"]]


def test_at_most_some_kernels_are_claimed_at_once(compiler, monkeypatch):
    monkeypatch.setattr(native, "MOST_CLAIMS", 2)
    assert native.build(["a", "b", "a", "c!", "d"], CPU) == ["", "", "", "wrong", ""]
    assert compiler == [["a", "b"], ["c!", "d"]]


def test_waiting_for_another_process_is_told(compiler, monkeypatch, caplog):
    monkeypatch.setattr(native, "take_claim", lambda name: None)
    monkeypatch.setattr(native, "WAIT", 0.1)
    monkeypatch.setattr(building, "REPORT_AFTER", 0.0)
    compiler.append(["b"])
    assert native.build(["a", "b"], CPU) == ["", ""]
    (told,) = caplog.messages
    assert told == "another process compiles candidate functions, 0 s so far: 1 of 2 kernels done"
