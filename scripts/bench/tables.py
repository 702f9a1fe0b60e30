"""Markdown tables of records: for the terminal, and for the pages of ``benchmarks/``."""

from collections.abc import Callable, Sequence

from .records import Record

Column = tuple[str, Callable[[Record], str]]
SIZE: Column = ("candidates x environments", lambda r: f"{r['candidates']:,} x {r['envs']:,}")
SPEED: list[Column] = [
    ("training, env-steps/s", lambda r: f"{r['training']:,.0f}"),
    ("physics alone", lambda r: f"{r['physics']:,.0f}"),
    ("ratio", lambda r: f"{r['training'] / r['physics']:.2f}"),
    ("memory", lambda r: f"{r['memory_gib']:.1f} GiB"),
]


def _phases(record: Record) -> str:
    """Return the seconds of a run's phases after the first iteration."""
    if "phase_s" not in record:
        return ""
    phases, ended = record["phase_s"], record["last_iteration_s"]
    training = ended - record["first_iteration_s"] - sum(phases.values())
    parts = (training, phases["evaluation"], phases["comparison"], phases["results"], record["seconds"] - ended)
    return ", ".join(f"{part:.1f}" for part in parts) + " s"


COLUMNS: dict[str, list[Column]] = {
    "scaling": [SIZE, *SPEED, ("startup", lambda r: f"{r['startup_s']:.0f} s")],
    "task_scaling": [
        ("task", lambda r: r["task"]),
        ("groups x environments", lambda r: f"{r['candidates']:,} x {r['envs']:,}"),
        *SPEED,
    ],
    "startup": [
        SIZE,
        ("candidates loaded and checked after", lambda r: f"{r['checked_s']:.1f} s"),
        ("first iteration done after", lambda r: f"{r['first_iteration_s']:.1f} s"),
        ("memory until then", lambda r: f"{r['memory_gib']:.1f} GiB"),
    ],
    "run": [
        SIZE,
        ("iterations", lambda r: f"{r['iterations']:,}"),
        ("whole run", lambda r: f"{r['seconds'] / 60:.1f} min"),
        ("page", lambda r: "included" if "after_last_iteration_s" in r else "left out"),
        ("env-steps/s, all included", lambda r: f"{r['env_steps'] / r['seconds']:,.0f}"),
        ("first iteration done after", lambda r: f"{r['first_iteration_s']:.0f} s"),
        ("memory", lambda r: f"{r['memory_gib']:.1f} GiB"),
        ("failed candidates", lambda r: f"{r['failed']}"),
        ("training, evaluations, comparisons, results, end", _phases),
    ],
}


def table(columns: Sequence[Column], rows: Sequence[Record]) -> list[str]:
    """Return Markdown lines, a row per record; a column that is empty in all of them is left out."""
    texts = [[text(row) for row in rows] for _, text in columns]
    kept = [k for k, cells in enumerate(texts) if any(cells)]
    return markdown([columns[k][0] for k in kept], list(zip(*(texts[k] for k in kept))))


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    head, *body = [f"| {' | '.join(row)} |" for row in (header, *rows)]
    return [head, "|" + "---|" * len(header), *body]
