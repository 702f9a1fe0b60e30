"""Messages on problems of a run's physics."""

from collections.abc import Mapping, Sequence

MAX_NAMED = 5  # candidates named in one line
MAX_WARNINGS = 10  # different warnings that are reported; warnings with numbers in them can be numerous
REPORTED_SHARE = 0.01  # candidates are named if blow-ups ended more than this share of their training episodes
CONTACTS_HINT = "give the model more room for contacts (docs/add_a_task.md)"


def join_some(entries: Sequence[str]) -> str:
    """Join the first MAX_NAMED entries and count the others."""
    more = f" and {len(entries) - MAX_NAMED} more" if len(entries) > MAX_NAMED else ""
    return ", ".join(entries[:MAX_NAMED]) + more


class PhysicsMonitor:
    """Reports dropped contacts and warnings of the simulator once during a wave.

    Args:
        names: the candidate of each group.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._overflowed: set[str] = set()
        self._reported: dict[str, int] = {}  # count by a warning's text when it was last reported
        self._warnings: dict[str, int] = {}
        self._blow_ups: dict[str, int] = {}

    def lines(self, overflows: Sequence[int], blow_ups: Sequence[int], warnings: Mapping[str, int]) -> list[str]:
        """Return messages on new problems.

        Args:
            overflows: ``contact_overflows`` so far, by group.
            blow_ups: ``unstable_resets`` so far, by group.
            warnings: number of the simulator's warnings so far, by text.
        """
        self._blow_ups, self._warnings = _total(self._names, blow_ups), dict(warnings)
        overflowed = _total(self._names, overflows)
        new = [name for name in overflowed if name not in self._overflowed]
        self._overflowed.update(new)
        lines = []
        if new:
            everyone = len(overflowed) == len(set(self._names)) > 1
            whose = "all candidates" if everyone else join_some(new)
            lines.append(
                f"the simulation dropped contacts of {whose} for lack of room: "
                f"do not trust their results, {CONTACTS_HINT}"
            )
        fresh = [text for text in warnings if text not in self._reported]
        return lines + [self._warning(text, "so far") for text in fresh[: max(0, MAX_WARNINGS - len(self._reported))]]

    def final_lines(self) -> list[str]:
        """Return the totals of warnings that have grown since they were reported."""
        grown = [text for text, count in self._reported.items() if self._warnings[text] > count]
        return [self._warning(text, "in all") for text in grown]

    def _warning(self, text: str, when: str) -> str:
        count = self._reported[text] = self._warnings[text]
        worst = sorted(self._blow_ups, key=lambda name: -self._blow_ups[name])
        where = (
            f"; physics blow-ups: {join_some([f'{name} {self._blow_ups[name]}' for name in worst])}" if worst else ""
        )
        return f"MuJoCo warned {count} time{'s' * (count > 1)} {when}: {text}{where}"


def _total(names: Sequence[str], counts: Sequence[int]) -> dict[str, int]:
    """Return the sum of the groups' counts by candidate, without zeros."""
    total: dict[str, int] = {}
    for name, count in zip(names, counts):
        if count:
            total[name] = total.get(name, 0) + count
    return total
