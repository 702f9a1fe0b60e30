"""Parts of a step that change arrays of NumPy, which no graph can contain."""

from types import SimpleNamespace

import numpy as np
import pytest

from envcoder_bench.core.graph_capture import WARM_UPS
from envcoder_bench.sources.term_tasks.graphs.parts import Parts


@pytest.mark.parametrize("change, reason", [(1.0, "changes what it keeps on the host: root > x"), (0.0, None)])
def test_a_part_that_changes_an_array_is_not_captured(change, reason, recwarn):
    held = SimpleNamespace(x=np.array([0.0, np.nan]))
    nothing = SimpleNamespace()
    world = SimpleNamespace(
        scene=nothing, sim=nothing, held=lambda: {"root": held}, reads=0, dialect=SimpleNamespace(name="line")
    )
    parts = Parts(lambda call: call, world, [])

    def call():
        held.x += change

    for _ in range(WARM_UPS):
        parts.begin()
        parts("p", call)
        parts.end()
    assert [str(w.message).partition("runs slowly: it ")[2] for w in recwarn] == [reason] * (reason is not None)
