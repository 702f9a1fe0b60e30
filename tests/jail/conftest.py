"""Programs of all operators come from the tests of tracing."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "shaping"))
