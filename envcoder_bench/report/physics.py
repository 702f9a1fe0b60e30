"""What went wrong in the physics of a run, as lines for the user."""

from __future__ import annotations

from typing import Mapping, Sequence

WORST = 5  # candidates named in one line
MOST_TEXTS = 10  # that the simulator warned with and that are repeated: texts with numbers in them are many
SMALL_SHARE = 0.01  # of its training episodes: a candidate whose physics blew up in no more is not named
MORE_ROOM = "give the model more room for contacts (docs/add_a_task.md)"


def named(entries: Sequence[str]) -> str:
    """Join the first few entries, and count the others."""
    more = f" and {len(entries) - WORST} more" if len(entries) > WORST else ""
    return ", ".join(entries[:WORST]) + more


class PhysicsNews:
    """Tells once, while a wave trains, that contacts were dropped, and what the simulator warned of.

    Args:
        names: the candidate of each group.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._overflowed: set[str] = set()
        self._told: dict[str, int] = {}  # a warning's text: how many of it were reported
        self._warnings: dict[str, int] = {}
        self._blow_ups: dict[str, int] = {}

    def lines(self, overflows: Sequence[int], blow_ups: Sequence[int], warnings: Mapping[str, int]) -> list[str]:
        """Report what is new.

        Args:
            overflows: for each group, ``contact_overflows`` so far.
            blow_ups: for each group, ``unstable_resets`` so far.
            warnings: the simulator's warnings so far, by their texts.
        """
        self._blow_ups, self._warnings = _total(self._names, blow_ups), dict(warnings)
        overflowed = _total(self._names, overflows)
        new = [name for name in overflowed if name not in self._overflowed]
        self._overflowed.update(new)
        lines = []
        if new:
            everyone = len(overflowed) == len(set(self._names)) > 1
            whose = "all candidates" if everyone else named(new)
            lines.append(
                f"the simulation dropped contacts of {whose}, because it had no room for all: "
                f"do not trust their results, {MORE_ROOM}"
            )
        fresh = [text for text in warnings if text not in self._told]
        return lines + [self._warning(text, "so far") for text in fresh[: max(0, MOST_TEXTS - len(self._told))]]

    def last(self) -> list[str]:
        """Report the totals that grew since they were reported."""
        grown = [text for text, count in self._told.items() if self._warnings[text] > count]
        return [self._warning(text, "in all") for text in grown]

    def _warning(self, text: str, when: str) -> str:
        count = self._told[text] = self._warnings[text]
        worst = sorted(self._blow_ups, key=lambda name: -self._blow_ups[name])
        where = f"; physics blow-ups: {named([f'{name} {self._blow_ups[name]}' for name in worst])}" if worst else ""
        return f"MuJoCo warned {count} time{'s' * (count > 1)} {when}: {text}{where}"


def _total(names: Sequence[str], counts: Sequence[int]) -> dict[str, int]:
    """Add up the counts of groups by their candidates, of those that have any."""
    total: dict[str, int] = {}
    for name, count in zip(names, counts):
        if count:
            total[name] = total.get(name, 0) + count
    return total
