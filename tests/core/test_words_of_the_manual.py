"""Messages name the manual's pages by their addresses where the package is a release, whose metadata has them."""

from email.message import Message

import pytest

from envcoder_bench.cli import eval_shapers
from envcoder_bench.core import words
from envcoder_bench.core.errors import UserError

PAGE = "https://example.org/repository/blob/main/docs/mjlab.md"


@pytest.fixture
def release(monkeypatch):
    metadata = Message()
    metadata["Project-URL"] = "Issues, https://example.org/repository/issues"
    metadata["Project-URL"] = "Repository, https://example.org/repository"
    monkeypatch.setattr(words, "metadata", lambda name: metadata)
    words._repository.cache_clear()
    yield
    words._repository.cache_clear()


def test_pages_have_addresses_in_a_release(release, capsys):
    assert str(UserError("see docs/mjlab.md#fitness")) == f"see {PAGE}#fitness"
    assert words.with_addresses(f"{PAGE} ../docs/mjlab.md docs/a/b.md") == f"{PAGE} ../docs/mjlab.md docs/a/b.md"
    with pytest.raises(SystemExit):
        eval_shapers.main(["--help"])
    assert PAGE in capsys.readouterr().out.replace("\n", "").replace(" ", "")


def test_pages_are_files_in_a_checkout(monkeypatch):
    monkeypatch.setattr(words, "metadata", lambda name: Message())
    words._repository.cache_clear()
    assert str(UserError("see docs/mjlab.md")) == "see docs/mjlab.md"
    words._repository.cache_clear()
