"""The effects of the changes in a run with variants, from the files of its folder."""

import logging
from collections.abc import Sequence
from pathlib import Path

from envcoder_bench.report.logs import Point, read_points
from envcoder_bench.report.results import Result
from envcoder_bench.report.terms.effects import Study, studies, write_effects
from envcoder_bench.report.terms.plot import plot_study
from envcoder_bench.run.folder.ranked import bounds_of, final_evaluation
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.run.spec import CandidateSource, RunConfig
from envcoder_bench.shaping.variants import Variant, variant_of

TERMS = "terms.csv"
log = logging.getLogger(__name__)


def variants_in(sources: Sequence[CandidateSource]) -> dict[str, Variant]:
    """Return what the variants among candidates are, by name."""
    names = {source.name for source in sources}
    found = {source.name: variant_of(source.source) for source in sources}
    return {name: made for name, made in found.items() if made is not None and made.original in names - {name}}


def run_studies(
    folder: RunFolder, cfg: RunConfig, sources: Sequence[CandidateSource], rows: Sequence[Result]
) -> list[Study]:
    """Compare the variants of a run with their originals; empty for a run without variants."""
    variants = variants_in(sources)
    if not variants:
        return []
    points: list[Point] = []
    try:
        points = read_points(folder.points)
    except (OSError, ValueError) as error:  # the effects on fitness do not depend on it
        log.warning("%s cannot be read, so that the speed of learning is not compared: %s", folder.points, error)
    return studies(variants, rows, final_evaluation(folder, cfg), points, bounds_of(cfg))


def picture(study: Study) -> str:
    """Return the name of a study's picture."""
    return f"{'sweep' if study.is_sweep else 'terms'}_{study.original}.png"


def write_studies(
    folder: RunFolder, cfg: RunConfig, sources: Sequence[CandidateSource], rows: Sequence[Result]
) -> dict[str, str]:
    """Write terms.csv and the pictures of a run with variants; return the files by what they are."""
    found = run_studies(folder, cfg, sources, rows)
    if not found:
        return {}
    write_effects(folder.path / TERMS, found)
    for study in found:
        plot_study(study, folder.path / picture(study), cfg.task.name)
    return {"terms": TERMS, **{Path(picture(study)).stem: picture(study) for study in found}}
