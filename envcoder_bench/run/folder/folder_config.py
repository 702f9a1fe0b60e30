"""config.yaml of a run folder, compared with the config in run.json: both must agree, or the run cannot be resumed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import MarkedYAMLError, YAMLError

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.files import write_atomic
from envcoder_bench.core.plain_yaml import refuse_aliases
from envcoder_bench.run.folder.provenance import Provenance

PLACE = "task_source"  # key of config.yaml
# keys of config.yaml that may be changed when a run is resumed, because they do not change its results
FREE_KEYS = (
    "task_source", "max_memory", "checkpoint_minutes", "save_state", "log_points", "profile", "device", "devices",
    "ray", "wandb.enabled", "wandb.project", "wandb.entity", "wandb.group", "wandb.mode", "wandb.tags",
)  # fmt: skip
_SHOWN = 3  # number of changed keys that are named
_MISSING = object()

Change = tuple[str, Any, Any]  # key, recorded value, present value


def read_config(file: Path, provenance: Provenance | None, complete: bool, notes: list[str]) -> DictConfig:
    """Return a run's config: that of config.yaml, or if this is damaged, that in run.json.

    Args:
        file: config.yaml; a damaged one of an unfinished run is restored.
        provenance: the content of run.json; None for a run of format 1, whose changes cannot be detected.
        complete: whether the run is complete, so that its results are those of the config in run.json.
        notes: messages for the user are added to it.

    Raises:
        ValueError: config.yaml is damaged, and there is no other copy.
        UserError: it was changed so that the run cannot be resumed.
    """
    try:
        text = file.read_text("utf-8")
        if provenance is not None and text != provenance.config:
            if provenance.config.startswith(text):
                raise ValueError("its end is missing")
            if text in provenance.before:
                raise ValueError("it is that before the run was extended")
        present = load_config(text)
    except (OSError, ValueError) as error:  # a UnicodeDecodeError is a ValueError
        reason = error.strerror if isinstance(error, OSError) else error
        if provenance is None:
            raise ValueError(f"config.yaml: {reason}") from error
        return _recorded(f"config.yaml is damaged ({reason})", file, provenance, complete, notes)
    if provenance is None:
        return present
    recorded = OmegaConf.to_container(OmegaConf.create(provenance.config))
    found = changes(_mapping(recorded), _mapping(OmegaConf.to_container(present)))
    lost = [change for change in found if missing(change)]
    if lost:
        return _recorded(f"config.yaml is damaged ({lost[0][0]} is missing)", file, provenance, complete, notes)
    if found and complete:
        cfg = load_config(provenance.config)
        if any(key == PLACE for key, *_ in found):  # the task was moved; the results are its own all the same
            cfg[PLACE] = present[PLACE]
        other = [change for change in found if change[0] != PLACE]
        if other:
            what = f"config.yaml was changed after the run ({shown(other)})"
            notes.append(f"{what}: these are results of the config in run.json")
        return cfg
    fixed = [change for change in found if change[0] not in FREE_KEYS]
    if fixed:
        raise UserError(
            f"{file} was changed since the run began ({shown(fixed)}): undo that, or begin a new run;"
            f" to resume a run, only {', '.join(FREE_KEYS)} may be changed"
        )
    if found:
        notes.append(f"config.yaml was changed since the run began ({shown(found)}): using the new values")
    return present


def _recorded(why: str, file: Path, provenance: Provenance, complete: bool, notes: list[str]) -> DictConfig:
    """Return the config in run.json instead of a damaged config.yaml; ``why`` describes the damage."""
    notes.append(f"{why}: using the config in run.json")
    if not complete:
        write_atomic(file, provenance.config)
    return load_config(provenance.config)


def changes(recorded: Mapping[str, Any], present: Mapping[str, Any]) -> list[Change]:
    """Return the dotted keys whose values differ, with both values; the value of a missing key is ``_MISSING``."""
    old, new = _flat(recorded), _flat(present)
    pairs = [(key, old.get(key, _MISSING), new.get(key, _MISSING)) for key in dict.fromkeys([*old, *new])]
    return [(key, a, b) for key, a, b in pairs if a != b or type(a) is not type(b)]


def missing(change: Change) -> bool:
    """Return whether a recorded key is missing now, which suggests a truncated file rather than an edit."""
    return change[2] is _MISSING


def shown(found: list[Change]) -> str:
    """Return changes as text for the user: ``seeds: 1 -> 3, seed: 0 -> 5``."""
    parts = [f"{key}: {_text(old)} -> {_text(new)}" for key, old, new in found[:_SHOWN]]
    more = [f"{len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    return ", ".join(parts + more)


def _text(value: Any) -> str:
    return "(missing)" if value is _MISSING else "null" if value is None else str(value)


def _flat(node: Any, prefix: str = "") -> dict[str, Any]:
    """Return leaves by dotted keys; empty mappings and lists are leaves."""
    items = node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, list) else ()
    if not items or not len(node):
        return {prefix[:-1]: node}
    flat: dict[str, Any] = {}
    for key, value in items:
        flat.update(_flat(value, f"{prefix}{key}."))
    return flat


def load_config(text: str) -> DictConfig:
    """Return the config of a run. Raises ValueError with a one-line message if the text is not one."""
    refuse_aliases(text)
    try:
        cfg = OmegaConf.create(text)
    except MarkedYAMLError as error:
        place = "" if error.problem_mark is None else f"line {error.problem_mark.line + 1}: "
        raise ValueError(f"{place}{error.problem}") from error
    except (YAMLError, OmegaConfBaseException) as error:
        raise ValueError(" ".join(str(error).split())) from error
    if not isinstance(cfg, DictConfig) or not isinstance(cfg.get("candidates"), ListConfig):
        raise ValueError("it is not the config of a run, or its end is missing")
    for listed in cfg.candidates:
        if not isinstance(listed, DictConfig) or not all(isinstance(listed.get(x), str) for x in ("name", "file")):
            raise ValueError("the end of its list of candidates is missing")
    return cfg


def _mapping(node: Any) -> dict[str, Any]:
    assert isinstance(node, dict)
    return node
