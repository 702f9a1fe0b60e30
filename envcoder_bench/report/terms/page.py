"""The section of a run's page on the effects of terms and sweeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from envcoder_bench.report.page import shell
from envcoder_bench.report.page.shell import Section
from envcoder_bench.report.terms.effects import Study
from envcoder_bench.report.terms.table import study_notes, study_rows


def study_sections(found: Sequence[Study], pictures: Mapping[str, bytes], folder: str = "RUN") -> list[Section]:
    """Return a section for each candidate that has variants.

    Args:
        pictures: PNG files by the candidate's name.
        folder: the run's folder, for commands.
    """
    parts, sections = shell.parts(), []
    for number, study in enumerate(found):
        header, *rows = study_rows(study)
        body = Markup()
        if study.original in pictures:
            body += parts.picture(pictures[study.original], f"effects of changes of {study.original}")
        body += parts.table(header, rows, [""] * len(header))
        body += parts.notes(study_notes(study, folder))
        what = "Sweep of" if study.is_sweep else "The terms of"
        sections.append(Section(f"terms-{number}", f"{what} {study.original}", body))
    return sections
