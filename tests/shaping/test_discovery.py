import os
import re

import pytest

from envcoder_bench.shaping.discovery import find_candidates, select


def touch(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    return root


def refuses(message):
    return pytest.raises(ValueError, match=f"^{re.escape(message)}$")


def test_tasks_own_folder_comes_first_and_is_sorted(tmp_path):
    touch(tmp_path / "user_functions", "Ant/b.py", "Ant/a.py", "Ant/_helper.py", "Ant/notes.txt", "flat.py")
    folder = tmp_path / "user_functions" / "Ant"
    assert find_candidates([], "Ant", tmp_path) == [folder / "a.py", folder / "b.py"]
    assert find_candidates([], "Cartpole", tmp_path) == [tmp_path / "user_functions" / "flat.py"]


def test_paths_are_files_and_folders_in_the_given_order(tmp_path):
    touch(tmp_path, "z.py", "more/y.py", "more/x.py", "more/_w.py", "more/deep/v.py")
    found = find_candidates([tmp_path / "z.py", tmp_path / "more"], "Ant", tmp_path)
    assert found == [tmp_path / "z.py", tmp_path / "more" / "x.py", tmp_path / "more" / "y.py"]


def test_empty_search_is_refused(tmp_path):
    folder = tmp_path / "user_functions"
    with refuses(f"no candidates found: there is neither {folder / 'Ant'} nor {folder}"):
        find_candidates([], "Ant", tmp_path)
    touch(tmp_path, "empty/_a.py", "empty/b.txt")
    looked = f"no candidates found in {tmp_path / 'empty'}: a candidate is a .py file whose name does not start with _"
    with refuses(f"{looked}; --candidates names files and folders"):
        find_candidates([tmp_path / "empty"], "Ant", tmp_path)


def test_invalid_paths_are_refused(tmp_path):
    touch(tmp_path, "reward_a.py", "notes.txt", "human.py", "one/same.py", "two/same.py")
    with refuses(f"{tmp_path / 'reward_b.py'} does not exist (did you mean reward_a.py?)"):
        find_candidates([tmp_path / "reward_b.py"], "Ant", tmp_path)
    with refuses(f"{tmp_path / 'no' / 'x.py'} does not exist"):
        find_candidates([tmp_path / "no" / "x.py"], "Ant", tmp_path)
    with refuses(f"{tmp_path / 'notes.txt'} is not a candidate: a candidate is a .py file"):
        find_candidates([tmp_path / "notes.txt"], "Ant", tmp_path)
    with refuses(f"{tmp_path / 'human.py'} has a baseline's name: rename it, human, unshaped and untrained are taken"):
        find_candidates([tmp_path / "human.py"], "Ant", tmp_path)
    one, two = tmp_path / "one" / "same.py", tmp_path / "two" / "same.py"
    with refuses(f"two candidates are named same: {one} and {two}; rename one"):
        find_candidates([one, two], "Ant", tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="links need rights elsewhere")
def test_broken_links_are_refused(tmp_path):
    touch(tmp_path, "reward_a.py")
    (tmp_path / "lost.py").symlink_to("gone.py")
    for paths in ([tmp_path], [tmp_path / "lost.py"]):
        with refuses(f"{tmp_path / 'lost.py'} is a link to gone.py, which does not exist"):
            find_candidates(paths, "Ant", tmp_path)


def test_select_takes_positions(tmp_path):
    paths = [tmp_path / f"{name}.py" for name in "abc"]
    assert select(paths, "2, 0") == [paths[2], paths[0]]
    with refuses("no candidate at position 3: there are 3 (0 a, 1 b, 2 c)"):
        select(paths, "0,3")
    with refuses("no candidate at position -1: there are 3 (0 a, 1 b, 2 c)"):
        select(paths, "-1")
    with refuses("candidate position 'a' is not a number: write e.g. 0,2,5"):
        select(paths, "0,a")
    with refuses("candidate position '' is not a number: write e.g. 0,2,5"):
        select(paths, "0,")
    with refuses("candidate position 1 is given twice"):
        select(paths, "1,1")


ALLOWED = "a candidate's name consists of letters, digits, - _ . + = and single spaces"
OTHER_CHARACTERS = [
    "...py",
    "a..py",
    "-rf.py",
    ".hidden.py",
    "a .py",
    "a  b.py",
    "a\nb.py",
    "a:b.py",
    "a\\b.py",
    "#a.py",
]


@pytest.mark.parametrize(
    "name, told",
    [
        *((name, f"{ALLOWED}, and must not begin with - + = or . or end with .") for name in OTHER_CHARACTERS),
        ("con.py", "con is a reserved name on Windows"),
        ("LPT1.x.py", "LPT1.x is a reserved name on Windows"),
        ("x" * 101 + ".py", "its name is longer than 100 bytes"),
        ("é" * 51 + ".py", "its name is longer than 100 bytes"),
    ],
)
def test_names_that_some_system_cannot_have_are_refused(tmp_path, name, told):
    touch(tmp_path, name)
    with refuses(f"{name!r}: rename it: {told}"):
        find_candidates([tmp_path / name], "Ant", tmp_path)


def test_common_names_are_accepted(tmp_path):
    names = ["000_smooth.py", "a b.py", "a-b+c.v2.py", "lr=3.py", "_private.py", "console.py", "naïve.py"]
    names.append("x" * 100 + ".py")
    touch(tmp_path, *names)
    assert find_candidates([tmp_path / name for name in names], "Ant", tmp_path) == [tmp_path / name for name in names]


def test_hidden_files_of_a_folder_are_skipped(tmp_path):
    touch(tmp_path, "a.py", ".b.py", "...py", "._a.py")
    assert find_candidates([tmp_path], "Ant", tmp_path) == [tmp_path / "a.py"]


@pytest.mark.parametrize("one, other", [("a.py", "A.py"), ("é.py", "e\u0301.py"), ("ﬁ.py", "fi.py")])
def test_names_equal_on_some_systems_are_refused(tmp_path, one, other):
    touch(tmp_path, f"one/{one}", f"other/{other}")
    first, second = tmp_path / "one" / one, tmp_path / "other" / other
    with pytest.raises(ValueError, match=r"(have the same name on some systems: rename one|rename it)"):
        find_candidates([first, second], "Ant", tmp_path)
    touch(tmp_path, "HUMAN.py")
    with pytest.raises(ValueError, match="has a baseline's name"):
        find_candidates([tmp_path / "HUMAN.py"], "Ant", tmp_path)


def test_only_regular_files_are_accepted(tmp_path):
    os.mkfifo(tmp_path / "pipe.py")
    with refuses(f"{tmp_path / 'pipe.py'} is not a candidate: it is not a regular file"):
        find_candidates([tmp_path / "pipe.py"], "Ant", tmp_path)
