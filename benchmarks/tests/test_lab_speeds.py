"""The page's table of speeds beside Isaac Lab 3.0 is that of the record."""

import json
from pathlib import Path

import lab_newton

PAGE = (Path(lab_newton.__file__).parent / "isaaclab.md").read_text()


def test_the_page_shows_the_speeds_of_the_record():
    speeds = json.loads(lab_newton.RECORD.read_text())["speeds"]["rows"]
    theirs, ours = ([x for x in speeds if x["3.0"] == real] for real in (True, False))
    rows = [lab_newton.row(*both) for both in zip(theirs, ours)]
    robots = tuple(f"| {name}, " for name in lab_newton.JOINTS)
    assert [line for line in PAGE.splitlines() if line.startswith(robots)] == rows
