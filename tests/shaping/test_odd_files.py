"""A file that is odd in any way is one casualty: its fault has its name, and the process is as before."""

import signal
import sys
import warnings
from random import Random

import pytest
import torch
from odd_files import FILES, STATEMENTS, TEXTS, reward
from shaping_fakes import BASELINE, FakeTask, Groups, load, shaping

from envcoder_bench.core.errors import UserError
from envcoder_bench.search.evolve import add_term, scale_number, scale_term
from envcoder_bench.search.evolve import quantities as quantities_of
from envcoder_bench.search.providers.code import extract_code
from envcoder_bench.search.terms import Tendency, reward_terms, scaled
from envcoder_bench.shaping.checking import check
from envcoder_bench.shaping.contract import CandidateError, assemble
from envcoder_bench.shaping.faults import by_user, of_candidate
from envcoder_bench.shaping.loading import parse
from envcoder_bench.shaping.scan import Scan
from envcoder_bench.shaping.source import Source, UnsupportedCode, inlined, reduced, shaping_source, without_script
from envcoder_bench.shaping.text import definitions
from envcoder_bench.shaping.variants import numbers, resolve_name, term_factors, with_factors, with_numbers
from envcoder_bench.tasks.contract import Key


def process():
    """What all candidates share."""
    return (
        sys.getrecursionlimit(), sys.get_int_max_str_digits(), torch.get_default_dtype(), torch.is_grad_enabled(),
        [x for x in warnings.filters if x[0] == "error"],
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FILES)
def test_an_odd_file_is_used_or_has_a_fault_with_its_name(name):
    before, task = process(), FakeTask(4)
    try:
        with of_candidate("odd.py"):
            candidate = load(FILES[name], "odd")
            check(assemble(candidate, load(BASELINE, "human")), task.state, task.constants, task)
    except CandidateError as error:
        assert str(error).isprintable() and len(str(error)) < 3000
        assert error.fault.file == "odd.py" or name.startswith("error of another file")
    assert process() == before
    assert shaping(reward()).functions["reward"].file == "mine.py"


@pytest.mark.parametrize("name", ["term of surrogates", "term of escapes", "term of 1,000 characters"])
def test_a_name_that_no_table_can_hold_is_refused(name):
    with pytest.raises(CandidateError, match=r"returned a component .* up to 200 printable characters"):
        shaping(FILES[name])


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_in_training_it_stops_its_own_group(statement):
    later = f"if NOW:\n        {statement}"
    groups, limits = Groups([reward(head="NOW = []", before=later), reward()]), process()[:2]
    groups.step(0)
    groups.shapings[0].functions["reward"].module["NOW"].append(1)
    try:
        groups.run(2, first=1)
    finally:
        sys.setrecursionlimit(limits[0])
        sys.set_int_max_str_digits(limits[1])
    assert set(groups.dispatch.failures) == ({0} if "sys.set" not in statement else set())


def test_ctrl_c_is_the_users_and_a_raised_interrupt_is_the_files():
    loop = "def f():\n    while True:\n        pass\n"
    raising = "def f():\n    raise KeyboardInterrupt\n"
    for text, of_user in ((loop, True), (raising, False)):
        module = {}
        exec(compile(text, "odd.py", "exec"), module)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        old = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            module["f"]()
        except KeyboardInterrupt as error:
            assert by_user(error, "odd.py") == of_user
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, old)


@pytest.mark.parametrize("name", TEXTS)
def test_whatever_reads_an_odd_text_refuses_it_as_such(name):
    text, types = TEXTS[name], ("compute_reward",)

    def tried(function, *arguments):
        try:
            return function(*arguments)
        except (UnsupportedCode, UserError, CandidateError):
            return None

    # what has no refusal
    for kept in (None, types, ("compute_observation",)):
        assert isinstance(reduced(text, kept)[0], str)
    assert all(isinstance(change(text), str) for change in (without_script, inlined))
    assert definitions(text) is not None
    for reply in (f"```python\n{text}\n```", text, f"```python\n{text}\n```\n```python\nW = 2\n```"):
        extract_code(reply)
    # what may refuse it
    tree = tried(parse, text, "odd.py")
    if tree is not None:
        scan = Scan(tree)
        assert scan.setter is None and scan.random_line("compute_reward") in (None, 1)
    declared = tried(numbers, text) or {}
    tried(resolve_name, "W", text, ["a"])
    for key in [*declared][:2]:
        tried(with_numbers, text, {key: "2"})
    tried(term_factors, with_factors(text, {"a": 0.5}))
    source = tried(shaping_source, text, types)
    if source is not None:
        source.fingerprint()
        for term in reward_terms(source):
            tried(scaled, source, {term: 1e300})
        for seed in range(3):
            tried(scale_number, source, types, Random(seed))
            tried(scale_term, source, {"a": Tendency(1.0, True)}, Random(seed))
            tried(add_term, source, quantities_of({"dof_pos": Key((3,), "float32")}), Random(seed))


@pytest.mark.parametrize(
    "written", ["\uff43ompute_torque", "compute_torqu\uff45", "\U0001d484ompute_torque", "compute_torque"]
)
def test_a_function_is_renamed_however_its_letters_are_written(written):
    text = f"async  def {written}(action):\n    return {written}\n\n\nclass {written}:\n    pass\n"
    renamed = Source(text).renamed({"compute_torque": "own"}).text
    assert renamed == "async  def own(action):\n    return own\n\n\nclass own:\n    pass\n"
    both = f"def compute_reward(dof_pos):\n    return {written}(dof_pos)\n\n\ndef {written}(x):\n    return x\n"
    assert "def _compute_torque(x)" in reduced(both, ("compute_reward",))[0]


@pytest.mark.parametrize(
    "text, message",
    [
        ("\nx = " + " + ".join(["1"] * 300), "line 2: code is nested more than 200 deep"),
        (f"\n\nx = {10**300 + 1}", "line 3: a whole number has more than 300 digits"),
        (f"x = 0x{'f' * 4300}", "line 1: a whole number has more than 300 digits"),
    ],
)
def test_code_that_is_too_deep_or_large_for_what_reads_it_is_named_with_its_line(text, message):
    with pytest.raises(UnsupportedCode, match=message):
        Source(text)
    assert Source("x = " + " + ".join(["1"] * 190)) and Source(f"x = {10**300}")
