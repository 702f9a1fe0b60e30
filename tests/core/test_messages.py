"""Muted messages, in one thread only."""

import logging
import threading
import warnings

import pytest

from envcoder_bench.core.run_log import is_muted, muted


def test_muted_applies_only_to_its_thread():
    seen = []
    with muted():
        assert is_muted()
        thread = threading.Thread(target=lambda: seen.append(is_muted()))
        thread.start()
        thread.join()
    assert seen == [False] and not is_muted()


def test_warnings_are_shown_again_after_muted():
    def warns():
        warnings.warn("slow", RuntimeWarning, stacklevel=1)

    with pytest.warns(RuntimeWarning) as told:
        with muted():
            warns()
        warns()
    assert len(told) == 1


def test_package_prints_no_messages_without_a_handler(capfd):
    logging.getLogger("envcoder_bench.somewhere").warning("hello")
    assert capfd.readouterr() == ("", "")
