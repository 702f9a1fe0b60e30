"""Parts of a step that are captured, against the same parts as they are."""

import pytest

pytest.importorskip("mjlab")
