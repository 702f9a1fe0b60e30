"""A wave: groups that train together."""

from dataclasses import dataclass

from envcoder_bench.run.prepare.groups import Group


@dataclass(frozen=True)
class Wave:
    """Groups that train together.

    Attributes:
        number, total: it is the ``number``-th of ``total`` waves.
        best: a candidate and its fitness, of earlier waves, if any.
        until: the iteration up to which it trains; None: the last one.
    """

    groups: list[Group]
    number: int = 1
    total: int = 1
    best: tuple[str, float] | None = None
    until: int | None = None
