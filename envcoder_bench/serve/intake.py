"""Candidates that an agent hands in: read from the folder that it may use, within limits, and never executed here."""

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.files import no_links, write_atomic
from envcoder_bench.serve.campaign import Campaign
from envcoder_bench.shaping.contract import Fault
from envcoder_bench.shaping.copies import Known
from envcoder_bench.shaping.discovery import refuse_clashes
from envcoder_bench.shaping.scan import MAX_CHARACTERS
from envcoder_bench.tasks.base import BASELINES, HUMAN

MOST_FILES = 64


def read_files(root: Path, files: Sequence[str], sources: Mapping[str, str]) -> dict[str, str]:
    """Return the texts of candidates by name: of files in ``root``, and of ``sources``.

    Raises UserError for a file outside of ``root``, a link, a text that is too long, or a name that is not valid.
    """
    if not files and not sources:
        raise UserError("no candidates", advice="give files, or sources by name")
    if len(files) + len(sources) > MOST_FILES:
        raise UserError(f"{len(files) + len(sources)} candidates are too many", advice=f"give at most {MOST_FILES}")
    texts: dict[str, str] = {}
    for file in files:
        texts[Path(file).stem] = _read(root, file)
    for name, source in sources.items():
        if name in texts:
            raise UserError(f"{name[:40]} is given twice")
        texts[name] = source
    for name, text in texts.items():
        if not name.isidentifier() or len(name) > 40 or name in BASELINES:
            raise UserError(f"{name[:40]!r} cannot be a name", advice="a name is a word of up to 40 letters and digits")
        if len(text) > MAX_CHARACTERS:
            raise UserError(f"{name} has {len(text):,} characters", advice=f"a file may have {MAX_CHARACTERS:,}")
    try:
        refuse_clashes([Path(f"{name}.py") for name in texts])
    except ValueError as error:
        raise UserError(str(error)) from None
    return texts


def _read(root: Path, file: str) -> str:
    """Return the text of a file in ``root``; links are refused, those of folders included."""
    path = (root / file).absolute()
    outside = UserError(f"{file[:80]} is not a .py file in {root}", advice="give a path relative to this folder")
    if path.suffix != ".py" or ".." in path.parts or not path.is_relative_to(root.absolute()):
        raise outside
    if "\0" in file or path.parent.resolve() != root.resolve() / path.parent.relative_to(root.absolute()):
        raise outside
    try:
        with open(path, "rb", opener=no_links) as opened:
            about = os.fstat(opened.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise outside
            if about.st_size > 4 * MAX_CHARACTERS:
                raise UserError(f"{file} has {about.st_size:,} bytes", advice=f"{MAX_CHARACTERS:,} characters at most")
            return opened.read().decode("utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{file} is not UTF-8") from None
    except OSError as error:
        advice = f"give a path relative to {root}"
        raise UserError(f"{file[:80]} cannot be read: {error.strerror}", advice=advice) from None


def copies(campaign: Campaign, texts: Mapping[str, str], baselines: Mapping[str, str]) -> dict[str, Fault]:
    """Return a fault for each candidate that teaches nothing new, or has the name of another one.

    Args:
        baselines: their texts by name; human fills in missing functions.
    """
    earlier = {path.stem: path.read_text("utf-8") for path in sorted((campaign.folder / "candidates").glob("*.py"))}
    signatures = Known.of({**baselines, **earlier}, baselines.get(HUMAN, ""))
    faults = {}
    for name, text in texts.items():
        fault = None
        if name in earlier and earlier[name] != text:
            message = f"another candidate was named {name}"
            fault = Fault(message, f"{name}.py", kind="duplicate", remedy=f"name it {name}_2", twin=name)
        elif name not in earlier:  # else it is ranked again
            fault = signatures.fault(name, text)
            signatures.add(name, text)
        if fault is not None:
            faults[name] = replace(fault, file=f"{name}.py")
    return faults


def keep(campaign: Campaign, texts: Mapping[str, str]) -> None:
    """Write candidates into the campaign's folder."""
    for name, text in texts.items():
        write_atomic(campaign.source(name), text)
