"""Dicts of untrusted files are read as data: what is not a literal is refused at its line, and no code runs."""

from dataclasses import replace

import pytest

from envcoder_bench.shaping.contract import CandidateError
from envcoder_bench.shaping.dicts import dicts_alone, joined, load_dicts, needs_jail
from envcoder_bench.shaping.loading import load_candidate

REWARD = "def compute_reward(reward_buf):\n    return 3.0 * reward_buf\n"


def complete(module, source):
    """Functions for the dict ``rewards``, as a task of mjlab gives them."""
    if "rewards" not in module:
        return {}, {}
    names = {"compute_reward", "compute_terminal"} - set(module)
    return dict.fromkeys(names, lambda reward_buf: reward_buf), {"rewards": module["rewards"]}


def load(source):
    return load_dicts("mine", source, "mine.py", 0, complete)


def test_nothing_but_the_literal_dicts_is_run_and_they_keep_their_lines():
    source = (
        f'import os; rewards = {{\n    "up": -2, "gone": None,\n    "std": {{"params": {{"x": (0.5, 1)}}}}}}\n{REWARD}'
    )
    assert dicts_alone(source, "mine.py") == source[source.index("rewards") : source.index("def")]
    assert dicts_alone(f"\n{REWARD}\nevents = {{}}", "mine.py") == "\n" * 4 + "events = {}\n"
    candidate = load(source.replace("import os", "raise SystemExit"))
    assert candidate.patches == {"rewards": {"up": -2, "gone": None, "std": {"params": {"x": (0.5, 1)}}}}


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
        ("rewards = {'up': {'history_length': 100}}", r"\['history_length'\] must be at most 64, not 100"),
        ("rewards = [1]", "rewards must be a dict"),
        ("rewards = other = {'up': 1.0}", r"must bind rewards as rewards = \{"),
        ("rewards = {}; rewards['up'] = 2.0", "may not use rewards: write all of it in the dict"),
        ("rewards = {}\nif True:\n    rewards = {'up': 1.0}", "must bind rewards|may not use rewards"),
        ("rewards = {}\ndef f():\n    rewards.clear()", "may not use rewards"),
    ],
)
def test_what_is_no_plain_data_is_refused_at_its_line(line, message):
    error = load(f"\n{line}\n")
    assert isinstance(error, CandidateError) and error.line in (2, 3, 4) and error.file == "mine.py"
    with pytest.raises(CandidateError, match=message):
        raise error


def test_functions_of_the_jail_replace_those_of_the_dicts():
    source = f'rewards = {{"up": 2.0}}\n\n\n{REWARD}'
    dicts = load(source)
    examined = load_candidate("mine", REWARD, "mine.py")
    both = joined(dicts, examined, source)
    assert both.functions["compute_reward"] is examined.functions["compute_reward"] and both.patches == dicts.patches
    assert needs_jail(dicts, source) and not needs_jail(load(source[:22]), source[:22]) and needs_jail(None, REWARD)
    assert set(load(source[:22]).functions) == {"compute_reward", "compute_terminal"}
    fault = CandidateError("raises", "mine.py")
    assert joined(dicts, fault, source) is fault and joined(fault, None, source) is fault
    assert joined(None, examined, source) == replace(examined, source=source)


def test_files_without_dicts_and_what_does_not_parse_are_left_to_the_jail():
    assert load(REWARD) is None and load("rewards = {") is None
    assert load_dicts("mine", "rewards = {}\n", "mine.py", 0, None) is None
