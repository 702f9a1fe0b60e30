"""Changes of the config of a run folder."""

from envcoder_bench.run.folder.provenance import changes, missing, shown


def test_changes_lists_the_keys_of_differing_leaves():
    old = {"a": {"b": 1, "c": [1, 2]}, "d": None, "e": []}
    assert changes(old, {"a": {"b": 1, "c": [1, 2]}, "d": None, "e": []}) == []
    found = changes(old, {"a": {"b": True, "c": [1, 3, 4]}, "d": 0})
    assert [key for key, *_ in found] == ["a.b", "a.c.1", "d", "e", "a.c.2"]
    assert [missing(change) for change in found] == [False, False, False, True, False]
    assert shown(found) == "a.b: 1 -> True, a.c.1: 2 -> 3, d: null -> 0, 2 more"
