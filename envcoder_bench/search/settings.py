"""The settings of a search: cfg/auto_shape.yaml with overrides."""

import math
import re
from collections.abc import Sequence
from pathlib import Path

from envcoder_bench.core.errors import UserError, near_matches, user_input
from envcoder_bench.core.folders import project_folder
from envcoder_bench.core.settings import Settings, dotted_keys, plain, select
from envcoder_bench.core.yaml_files import overridden, read_yaml
from envcoder_bench.tasks.base import BASELINE_FILES

_INTEGERS: dict[str, int] = {  # key: least value
    "num_iters": 1,
    "shapers_per_iter": 1,
    "repair": 0,
    "concurrency": 1,
    "replies_per_request": 1,
    "final_seeds": 1,
    "final_episodes": 1,
    "prompt.max_chars": 1,
}
_GREATEST = {  # far above what can be trained; greater ones would keep lists of that length busy for hours
    "num_iters": 10_000,
    "shapers_per_iter": 10_000,
    "repair": 1_000,
    "final_seeds": 10_000,
}
_OPTIONAL_INTEGERS: dict[str, int] = {"max_output_tokens": 1, "max_tokens": 1}


def compose_settings(words: Sequence[str]) -> tuple[Settings, list[str]]:
    """Apply the overrides of keys of cfg/auto_shape.yaml.

    Returns:
        The settings, and the other overrides, which are those of a run.

    Raises:
        UserError: if an override is malformed, names an unknown key, or has an invalid value.
    """
    settings = _defaults()
    others: list[str] = []
    for word in words:
        key = word.split("=")[0]
        if key.split(".")[0] not in settings:
            others.append(word)
            continue
        if key not in dotted_keys(settings):
            hint = near_matches(key, dotted_keys(settings))
            raise UserError(f"unknown key '{key}'{hint}; the search's keys are those of cfg/auto_shape.yaml")
        with user_input():
            settings = overridden(settings, word)
    check_settings(settings)
    return settings, others


def explain_unknown(error: UserError) -> UserError:
    """Add the search's keys to a run's message about an unknown key, because a search takes the keys of both."""
    match = re.match(r"unknown key '([^']+)'", str(error))
    if not match:
        return error
    key, names = match[1], dotted_keys(_defaults())
    same = [name for name in names if name.endswith(f".{key}")]
    hint = f" (did you mean {' or '.join(same)}?)" if same else near_matches(key, names)
    return UserError(f"{error}; those of the search are in cfg/auto_shape.yaml{hint}")


def _defaults() -> Settings:
    return read_yaml(project_folder("cfg") / "auto_shape.yaml")


def check_settings(settings: Settings) -> None:
    """Raise UserError for a setting whose value has the wrong type or range."""
    if not isinstance(settings.prompt, Settings):
        raise UserError(f"prompt has the keys dir and max_chars, got prompt={settings.prompt}")
    for key, least in {**_INTEGERS, **_OPTIONAL_INTEGERS}.items():
        value = select(settings, key)
        if key in _OPTIONAL_INTEGERS and value is None:
            continue
        if type(value) is not int or value < least:
            raise UserError(f"{key} must be a whole number of at least {least}, got {value}")
        if value > _GREATEST.get(key, value):
            raise UserError(f"{key} must be at most {_GREATEST[key]:,}, got {value}")
    for key in ("temperature", "max_cost"):
        value = settings[key]
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if value is not None and not (is_number and 0 <= value < math.inf):
            raise UserError(f"{key} must be a number of at least 0, got {value}")
    timeout = settings.reply_timeout
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout < math.inf:
        raise UserError(f"reply_timeout must be a number of seconds above 0, got {timeout}")
    if not isinstance(settings.show_baseline, bool):
        raise UserError(f"show_baseline must be yes or no, got {settings.show_baseline}")
    if not isinstance(settings.parents, tuple) or not set(settings.parents) <= set(BASELINE_FILES):
        raise UserError(f"parents must be a list of {' and '.join(BASELINE_FILES)}, got {plain(settings.parents)}")
    folder = settings.prompt.dir
    if folder is not None and not Path(str(folder)).is_dir():
        raise UserError(f"--prompt_dir {folder}: there is no such folder")
