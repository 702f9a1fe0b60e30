"""Parts of a step that are captured, against the same parts as they are."""

import pytest
import torch
from recorded_ops import capture

pytest.importorskip("mjlab")
