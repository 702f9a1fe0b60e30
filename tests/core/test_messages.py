"""Muted messages, in one thread only."""

import logging
import threading
import warnings

import pytest

from envcoder_bench.core.messages import is_muted, muted


def test_a_block_is_muted_and_other_threads_are_not():
    seen = []
    with muted():
        assert is_muted()
        thread = threading.Thread(target=lambda: seen.append(is_muted()))
        thread.start()
        thread.join()
    assert seen == [False] and not is_muted()


def test_warnings_come_again_after_it():
    def warns():
        warnings.warn("slow", RuntimeWarning, stacklevel=1)

    with pytest.warns(RuntimeWarning) as told:
        with muted():
            warns()
        warns()
    assert len(told) == 1


def test_the_package_says_nothing_unless_somebody_listens(capfd):
    logging.getLogger("envcoder_bench.somewhere").warning("hello")
    assert capfd.readouterr() == ("", "")
