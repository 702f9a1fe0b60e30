"""Division of programs among kernels, and the use of kernels that the process already has."""

import pytest
import torch

from envcoder_bench.compile import building, kernels
from envcoder_bench.compile.c_code import CCode
from envcoder_bench.compile.kernels import MOST_KERNELS, PROGRAMS_PER_KERNEL, GroupProgram, divide, divide_fully
from envcoder_bench.compile.program import Program
from tests.fakes.tracing_fakes import Compiled, function, make_state, record


def code(number, lines=1, constant=0.0):
    return CCode(f"program {number}" + "\n" * lines, (constant,), (), ())


def jobs(numbers):
    return [GroupProgram(group, 0, code(number, constant=group)) for group, number in enumerate(numbers)]


def names(kernels):
    return [[one.statements.strip()[8:] for one in kernel.codes] for kernel in kernels]


def run_by(kernels):
    """For each group, the program that runs it."""
    pairs = [(job.group, code) for kernel in kernels for code, own in zip(*kernel) for job in own]
    assert len({group for group, _ in pairs}) == len(pairs)
    return {group: int(code.statements.split()[1]) for group, code in pairs}


def test_equal_programs_share_a_case_and_kernels_are_filled_in_order():
    numbers = [*range(20), 3, 19, 3]
    kernels = divide(jobs(numbers), [])
    assert [len(kernel.codes) for kernel in kernels] == [PROGRAMS_PER_KERNEL, 20 - PROGRAMS_PER_KERNEL]
    assert run_by(kernels) == dict(enumerate(numbers))
    assert [job.group for job in kernels[0].jobs[3]] == [3, 20, 22]


def test_long_program_has_its_own_kernel():
    long = [GroupProgram(i, 0, code(i, lines)) for i, lines in enumerate((10, kernels.MAX_LINES, 10, 10))]
    assert names(divide(long, [])) == [["0"], ["1"], ["2", "3"]]


@pytest.mark.parametrize("left", [range(0, 64, 2), range(64), range(40, 64), [5, 21, 37, 53]])
def test_survivors_need_no_new_kernel(left):
    known = [kernel.codes for kernel in divide(jobs(range(64)), [])]
    kernels = divide(jobs(left), known)
    assert all(kernel.codes in known for kernel in kernels)
    assert run_by(kernels) == dict(enumerate(left))


def test_new_kernels_are_made_where_known_ones_would_be_many_launches():
    known = [kernel.codes for kernel in divide(jobs(range(16 * (MOST_KERNELS + 1))), [])]
    left = range(0, len(known) * 16, 16)
    assert names(divide(jobs(left), known)) == [[str(number) for number in left]]


def test_new_programs_are_divided_as_if_alone_unless_known_kernels_save_one():
    known = [kernel.codes for kernel in divide(jobs(range(16)), [])]
    assert names(divide(jobs([0, 100, 101]), known)) == [["0", "100", "101"]]  # one new kernel in either case
    mixed = divide(jobs([*range(100, 116), 0]), known)
    assert names(mixed) == [[str(number) for number in range(16)], [str(number) for number in range(100, 116)]]
    assert run_by(mixed) == dict(enumerate([*range(100, 116), 0]))


def test_alone_leaves_out_programs_that_are_not_needed():
    known = [[code(0), code(1), code(2)]]
    (kernel,) = divide(jobs([2, 0]), known)
    assert [names([own]) for own in divide_fully(kernel)] == [[["0"]], [["2"]]]
    assert divide_fully(divide_fully(kernel)[0]) == []


def test_kernels_of_a_larger_set_run_the_survivors_bitwise(monkeypatch):
    monkeypatch.setattr(kernels, "PROGRAMS_PER_KERNEL", 2)
    bodies = ["torch.sin(x) * 1.625", "x * x + 0.375", "torch.exp(-x)", "x / 3.25", "torch.cos(x) - x"]
    state = make_state(6)
    programs = [record(function(body), state) for body in bodies]
    assert all(isinstance(program, Program) for program in programs)
    whole = Compiled(programs, 6)
    expected = whole.run(state)
    assert len(whole.launches) == 3

    def build(codes, target):
        raise AssertionError("compiled again")

    monkeypatch.setattr(building, "build", build)
    survivors = [4, 0, 2]
    own = Compiled([programs[i] for i in survivors], 6)
    assert len(own.launches) == 3
    for i, result in zip(survivors, own.run(state)):
        assert torch.equal(result.floats, expected[i].floats)
