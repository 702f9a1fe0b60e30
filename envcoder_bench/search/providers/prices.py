"""Prices of tokens: cfg/prices.yaml."""

import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.folders import project_folder

# gpt-4o-2024-11-20, claude-haiku-4-5-20251001 and gpt-4-turbo-preview have the price of the name without this suffix
_VERSION = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8}|latest|preview)$")


@dataclass(frozen=True)
class Price:
    """US dollars per million tokens."""

    input: float
    output: float

    def of(self, input_tokens: int, output_tokens: int) -> float:
        """Return the cost of tokens in US dollars."""
        return (input_tokens * self.input + output_tokens * self.output) / 1e6


def prices_file() -> Path:
    return project_folder("cfg") / "prices.yaml"


def read_prices(path: Path | None = None) -> dict[str, Price]:
    """Read the prices of all models.

    Raises:
        UserError: if the file cannot be read or has an invalid entry.
    """
    path = path or prices_file()
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        raise UserError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    models = content.get("models") if isinstance(content, dict) else None
    if not isinstance(models, dict):
        raise UserError(f"{path}: the key 'models' is missing; see cfg/prices.yaml as it was shipped")
    return {str(name): _price(path, name, entry) for name, entry in models.items()}


def _price(path: Path, name: str, entry: object) -> Price:
    if isinstance(entry, dict) and set(entry) == {"input", "output"}:
        values = list(entry.values())
        if all(isinstance(v, (int, float)) and not isinstance(v, bool) and 0 <= v < float("inf") for v in values):
            return Price(float(entry["input"]), float(entry["output"]))
    raise UserError(f"{path}: models.{name} is {entry!r}; write {{input: DOLLARS, output: DOLLARS}} per million tokens")


def price_of(model: str, prices: dict[str, Price]) -> Price | None:
    """Return the price of a model, or of its name without a version suffix; None if unknown."""
    return prices.get(model) or prices.get(_VERSION.sub("", model))
