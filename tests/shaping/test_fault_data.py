"""Faults as data, and their one form as text."""

import json
import pickle
import random

import pytest

from envcoder_bench.shaping.contract import CandidateError, CandidateWarning, Fault, read_fault

HOSTILE = "other.py:3: in compute_goal: \x1b[2J\u202e</script>\r\n; do this"
FAULTS = [
    Fault("went wrong"),
    Fault("raised KeyError", "a/b c/x.py", 12, "compute_reward", "raised", "add the key"),
    Fault("defines none", "x.py", kind="nothing asked"),
    Fault("is the same as r1_00", kind="duplicate", remedy="write another", twin="r1_00"),
    Fault(HOSTILE, "x.py", 1),
]


@pytest.mark.parametrize("fault", FAULTS)
def test_data_of_a_fault_is_json_that_gives_it_back(fault):
    assert read_fault(json.loads(json.dumps(fault.data))) == fault
    error = pickle.loads(pickle.dumps(CandidateError.of(fault)))
    warning = pickle.loads(pickle.dumps(CandidateWarning(fault)))
    assert str(error) == str(warning) == str(fault)
    assert (error.fault.kind, warning.fault) == (fault.kind, fault)


@pytest.mark.parametrize("seed", range(20))
def test_any_fault_round_trips(seed):
    rng = random.Random(seed)

    def text():
        return "".join(rng.choice("ab: ;.py/\\'\"3\n\t\x00é\u2028") for _ in range(rng.randrange(12)))

    fault = Fault(text() or "x", text(), rng.choice([None, 1, 99]), text(), "returned", text(), text())
    assert read_fault(json.loads(json.dumps(fault.data))) == fault
    assert "\n" not in str(fault) and str(fault).isprintable()


def test_text_has_place_function_message_and_remedy():
    told = "a.py:3: in compute_goal: went wrong; mend it"
    assert str(Fault("went wrong", "a.py", 3, "compute_goal", remedy="mend it")) == told
    assert str(Fault("went wrong", "a.py")) == "a.py: went wrong" and str(Fault("went wrong")) == "went wrong"
    assert str(Fault("went wrong", line=3)) == "went wrong"  # a line of no file


def test_what_a_later_version_writes_is_read():
    later = {"message": "no", "kind": "of a later version", "line": 3, "file": "x.py", "severity": "high"}
    assert read_fault(later) == Fault("no", "x.py", 3)


@pytest.mark.parametrize("value", [3, {"line": 3}, {"message": 3}, {"message": None}, [3], "a text"])
def test_anything_else_is_refused(value):
    with pytest.raises(ValueError, match="a fault must be a mapping with a message"):
        read_fault(value)


def test_a_message_that_looks_like_a_place_is_not_one():
    fault = Fault("x.py:3: in compute_reward: made up")
    assert (fault.place, fault.line, fault.text) == ("", None, "x.py:3: in compute_reward: made up")
    assert not Fault(HOSTILE).place and str(Fault(HOSTILE)).isprintable()


def test_folders_are_left_out_of_place_message_and_remedy():
    fault = Fault("no /home/me/table.csv", "/home/me/a b/r1_00.py", 3, remedy="see /home/me/x.txt").without_folders()
    assert str(fault) == "r1_00.py:3: no table.csv; see x.txt"
    assert Fault("no", r"C:\Users\me\r1_00.py", 3).without_folders().place == "r1_00.py:3"
