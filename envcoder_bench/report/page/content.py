"""The content of the page of a run, or of a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from envcoder_bench.report.page.shell import Section
from envcoder_bench.report.ranking import Ranked

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class PageCandidate:
    """A candidate on the page.

    Attributes:
        file: where its file was.
        source: the text of its file; None if it is not known.
        facts: further lines of its description by title, such as the functions that are compiled.
        against: name and text of the file that it is compared with; None for no comparison.
    """

    name: str
    file: str
    source: str | None
    facts: Mapping[str, str] = field(default_factory=dict)
    against: tuple[str, str] | None = None


@dataclass(frozen=True)
class PageEpisode:
    """An episode on the page.

    Attributes:
        mp4: the video; None if there is none.
        summary: one line beneath it, such as its fitness.
        times: seconds.
        lines: values at these times by name; the first one is the fitness so far.
    """

    name: str
    mp4: bytes | None
    summary: str
    times: Sequence[float]
    lines: Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class PageVideos:
    """The videos of a page.

    Attributes:
        seconds: the length of the videos.
        note: what is said about them, or why there are none.
    """

    episodes: Sequence[PageEpisode] = ()
    seconds: float = 0.0
    note: str = ""


@dataclass(frozen=True)
class RunPage:
    """The content of a page.

    Attributes:
        facts: short facts for the head of the page.
        curves, components: tables as ``read_curves`` returns them; None for a run without any.
        how: how it was run, by title.
        command: the command that repeats it.
        sections: further sections.
        lead: the first paragraphs; without any, the best candidate and the baselines.
        scores: of a search, by which its candidates are ranked, by name.
        folder: the run's folder, for commands.
    """

    title: str
    fitness_meaning: str
    ranked: Sequence[Ranked]
    candidates: Sequence[PageCandidate]
    facts: Sequence[str] = ()
    curves: pd.DataFrame | None = None
    components: pd.DataFrame | None = None
    videos: PageVideos = PageVideos()
    how: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    sections: Sequence[Section] = ()
    lead: Sequence[str] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    folder: str = "RUN"
