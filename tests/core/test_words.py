"""Counted nouns, numbers, and messages without folders."""

import time

import pytest

from envcoder_bench.core.words import counted, decimal_places, fixed, format_fitness, number, without_folders


@pytest.mark.parametrize(
    ("number", "told"), [(0, "0 rounds"), (1, "1 round"), (1.0, "1.0 round"), (2, "2 rounds"), (1200, "1,200 rounds")]
)
def test_counted_nouns_agree_with_their_number(number, told):
    assert counted(number, "round") == told


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1.72e-5, "1.72e-5"), (-1.7e-5, "-1.7e-5"), (0.00099999, "1e-3"), (0.001, "0.001"), (0.03121, "0.03121"),
        (0.0, "0"), (-0.0, "0"), (2.5, "2.5"), (999.94, "999.9"), (1234.5, "1,234"), (1234567.0, "1,234,567"),
        (3.2e20, "3.2e20"), (float("nan"), "nan"), (float("inf"), "inf"),
    ],
)  # fmt: skip
def test_numbers_have_four_digits_and_no_rows_of_zeros(value, shown):
    assert number(value) == shown
    assert number(value, sign="+").lstrip("+-") == shown.lstrip("+-")


def test_digits_of_a_fitness_follow_from_its_size():
    for values, places in (
        ([0.5, 3e-9], 3), ([12.0], 2), ([120.0], 1), ([5000.0], 0), ([0.01], 3), ([0.0052, 0.001], 5), ([1.7e-5], 7),
        ([0.0], 3), ([1e-17, float("nan")], 3), ([], 3),
    ):  # fmt: skip
        assert decimal_places(values) == places
    texts = [fixed(x, 7, "+") for x in (1.72e-5, -3.1e-6, 4e-8, 0.0, 4e-9)]
    assert texts == ["+1.72e-5", "-0.31e-5", "+0.00e-5", "+0.00e-5", "+0.00e-5"]
    assert [format_fitness(x) for x in (0.91234, 1.7e-5, 0.0052, 1234.5)] == ["0.912", "1.70e-5", "0.00520", "1234"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/home/me/searches/a/r1_00.py: has more than 9 characters", "r1_00.py: has more than 9 characters"),
        ("[Errno 2] No such file: '/home/me/my files/table.csv'", "[Errno 2] No such file: 'table.csv'"),
        ('File "/usr/lib/python3/x.py", line 3', 'File "x.py", line 3'),
        ("see /tmp/x/y, /tmp/x/z.log and ~/w/v", "see y, z.log and v"),
        ("raised OSError(/a/b/c)", "raised OSError(c)"),
        (r"C:\Users\me\searches\r1_00.py: bad", "r1_00.py: bad"),
        ("replay:/home/me/searches/s1", "replay:s1"),
        # these are no paths
        ("m@http://localhost:11434/v1: 500: no", "m@http://localhost:11434/v1: 500: no"),
        ("https://api.openai.com/v1/chat/completions", "https://api.openai.com/v1/chat/completions"),
        ("in rad/s, 1/(N m), a / b, a /b", "in rad/s, 1/(N m), a / b, a /b"),
        ("x = y / z / w", "x = y / z / w"),
        (r"unexpected '\n\t' in compute_reward", r"unexpected '\n\t' in compute_reward"),
        ("searches/x/r1_00.py", "searches/x/r1_00.py"),
        ("", ""),
        ("/", "/"),
    ],
)  # fmt: skip
def test_paths_in_messages_are_reduced_to_file_names(text, told):
    assert without_folders(text) == told
    assert without_folders(told) == told


def test_cleaning_time_is_linear_in_the_length():
    """Quadratic time would be minutes of processor time."""
    began = time.process_time()
    for unit in ("/", "/a", "/a b", "'/a", "'/a ", '"', "~/", "C:\\", "C:\\a", "/a/'", ".py:", "a/", " /"):
        text = (unit * 40_000)[:40_000]
        for whole in (text, "'/" + text, "/" + text, "C:\\" + text):
            without_folders(whole)
    assert time.process_time() - began < 3.0  # about 0.2
