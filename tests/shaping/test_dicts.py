"""Dicts of untrusted files are read as data: what is not a literal is refused at its line, and no code runs."""

import json

import pytest

from envcoder_bench.shaping.contract import Candidate, CandidateError, sections_of
from envcoder_bench.shaping.dicts import read_dicts, valid_dict, with_dicts
from envcoder_bench.shaping.loading import load_candidate

REWARD = "def compute_reward(reward_buf):\n    return 3.0 * reward_buf\n"


def complete(module, source):
    """Functions for the dict ``rewards``, as a task of mjlab gives them."""
    if "rewards" not in module:
        return {}, {}
    names = {"compute_reward", "compute_terminal"} - set(module)
    return dict.fromkeys(names, lambda reward_buf: reward_buf), {"rewards": module["rewards"]}


def load(source, functions=None):
    """What the trainer makes of a file whose dicts the jail has read, and perhaps its functions."""
    dicts = read_dicts(source, "mine.py")
    return with_dicts(Candidate("mine", "mine.py", source, functions or {}, dicts=dicts), complete, 0)


def test_nothing_is_run_and_the_dicts_keep_their_lines():
    source = (
        f'import os; rewards = {{\n    "up": -2, "gone": None,\n    "std": {{"params": {{"x": [0.5, 1]}}}}}}\n{REWARD}'
    )
    dicts = read_dicts(source.replace("import os", "raise SystemExit"), "mine.py")
    assert dicts.values == {"rewards": {"up": -2, "gone": None, "std": {"params": {"x": (0.5, 1)}}}}
    assert dicts.lines == {"rewards": {"": 1, "up": 2, "gone": 2, "std": 3, "params": 3, "x": 3}}
    assert dicts.functions == ("compute_reward",)
    assert valid_dict(json.loads(json.dumps(dicts.values["rewards"])))


@pytest.mark.parametrize(
    "line, message",
    [
        ("rewards = {'up': __import__('os').system('touch x')}", r"rewards\['up'\] must be a number, None or a dict"),
        ("rewards = {'new': mine}", r"\['new'\] must .*; write a new term in compute_reward\(state_dict\)"),
        (
            "events = {'push': {'func': mine}}",
            r"events\['push'\]\['func'\] must be a number, None or a dict of numbers$",
        ),
        ("rewards = {'up': 1.0, **more}", "must be names in quotes"),
        ("rewards = {'up': [1.0]}", r"\['up'\] must be a number"),
        ("rewards = {'up': 'much'}", r"\['up'\] must be a number"),
        ("rewards = {'up': -None}", r"\['up'\] must be a number"),
        ("rewards = {'up': 1e999}", r"\['up'\] must be at most 1,000,000, not inf"),
        (f"rewards = {{'up': {'9' * 400}}}", "a whole number has more than 300 digits"),
        (f"rewards = {{'up': {'9' * 300}}}", r"\['up'\] must be at most 1,000,000, not 9"),
        ("rewards = {'a\\x1b[2J': 1}", "names in quotes, of up to 64 printable characters"),
        ("rewards = {'a': {'b': {'c': {'d': {'e': {'f': {'g': {'h': {'i': 1}}}}}}}}}", "more than 8"),
        ("rewards = {'up': {'history_length': 100}}", r"\['history_length'\] must be at most 64, not 100"),
        ("rewards = [1]", "rewards must be a dict"),
        ("rewards = other = {'up': 1.0}", r"must bind rewards as rewards = \{"),
        ("rewards = {}; rewards['up'] = 2.0", "may not use rewards; write all of it in the dict"),
        ("rewards = {}\nif True:\n    rewards = {'up': 1.0}", "must bind rewards|may not use rewards"),
        ("rewards = {}\ndef f():\n    rewards.clear()", "may not use rewards"),
    ],
)
def test_what_is_no_plain_data_is_refused_at_its_line(line, message):
    with pytest.raises(CandidateError, match=message) as error:
        read_dicts(f"\n{line}\n", "mine.py")
    assert error.value.fault.line in (2, 3, 4, None) and error.value.fault.file == "mine.py"


@pytest.mark.parametrize(
    "value",
    [
        {"a": float("inf")}, {"a": 1e7}, {"a": {"b": 65}}, {"a": 10**400}, {"a": "x"}, {"a": [1]}, {"": 1}, {"a\n": 1},
        {"\ud800": 1}, {"a": {1: 2}}, {"a" * 65: 1}, [], 1, {"a": {"b": [[[[[[[[1]]]]]]]]}},
    ],
)  # fmt: skip
def test_an_answer_of_the_jail_is_not_believed(value):
    assert not valid_dict(value)


def test_functions_of_the_jail_replace_those_of_the_dicts():
    source = f'rewards = {{"up": 2.0}}\n\n\n{REWARD}'
    examined = load_candidate("mine", REWARD, "mine.py").functions
    both = load(source, examined)
    assert both.functions["compute_reward"] is examined["compute_reward"] and sections_of(both.definitions) == {
        "rewards": {"up": 2.0}
    }
    alone = load(source[:22])
    assert set(alone.functions) == {"compute_reward", "compute_terminal"} and alone.source == source[:22]
    assert load(REWARD, examined).definitions is examined


@pytest.mark.parametrize("error", [RecursionError(), OverflowError("int too large"), KeyError("x"), MemoryError()])
def test_whatever_a_task_raises_on_a_dict_is_its_candidates_fault(error):
    def fails(module, source):
        error.section, error.key = "rewards", "up"
        raise error

    source = 'import math\nrewards = {\n    "up": 2.0}\n'
    dicts = read_dicts(source, "mine.py")
    with pytest.raises(CandidateError, match=type(error).__name__) as fault:
        with_dicts(Candidate("mine", "mine.py", source, {}, dicts=dicts), fails, 0)
    assert fault.value.fault.line == 3
    with pytest.raises(CandidateError, match=type(error).__name__):  # of a trusted file
        load_candidate("mine", source, "mine.py", complete=fails)


def test_files_without_dicts_have_none_and_what_does_not_parse_is_named():
    assert read_dicts(REWARD, "mine.py") is None
    with pytest.raises(CandidateError, match="syntax error"):
        read_dicts("rewards = {", "mine.py")
