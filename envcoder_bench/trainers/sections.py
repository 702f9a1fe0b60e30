"""Typed sections of a trainer's ``params``, whose errors name the key and what it takes."""

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from envcoder_bench.core.settings import Expected, merged, nested, plain, words_for

Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1), Expected("a number from 0 to 1")]
NotNan = Annotated[float, Field(ge=-math.inf)]
Switch = Annotated[bool, Expected("True or False")]


class Section(BaseModel):
    """Keys of one mapping of ``params``; other keys of the mapping have no effect."""

    model_config = ConfigDict(frozen=True, strict=True)


def check_section(section: type[Section], values: Mapping[str, Any], section_key: str) -> None:
    """Raise ValueError for the first wrong value, except absent ones; ``section_key`` is the section's key."""
    try:
        section.model_validate(dict(values))
    except ValidationError as error:
        for key in [str(fault["loc"][0]) for fault in error.errors() if fault["type"] != "missing"]:
            expected = words_for(section.model_fields[key])
            raise ValueError(f"params.{section_key}.{key}: must be {expected}, got {yaml_word(values[key])}") from None


def yaml_word(value: object) -> str:
    """Return a value as YAML writes it."""
    return "null" if value is None else str(value)


def with_numbers(params: Mapping[str, Any], numbers: Mapping[str, float]) -> Mapping[str, Any]:
    """Return ``params`` with other values, by their dotted keys."""
    return plain(merged(params, nested(numbers))) if numbers else params
