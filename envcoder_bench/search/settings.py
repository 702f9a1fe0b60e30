"""The settings of a search: cfg/auto_shape.yaml with overrides."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from envcoder_bench.core.errors import UnknownKey, UserError, near_matches, user_input
from envcoder_bench.core.folders import project_folder
from envcoder_bench.core.settings import Count, Expected, Keys, Number, as_tuple, fields, key
from envcoder_bench.core.yaml_files import overridden, read_yaml

# a resumed search takes higher limits, and other values of these arguments and settings
LIMITS = ("max_tokens", "max_cost", "num_iters")
MODEL = ("llm", "base_url", "temperature", "max_output_tokens", "reply_timeout")
MOST_ROUNDS = 10_000  # far above what can be trained; more would keep lists of that length busy for hours
Rounds = Annotated[int, Field(ge=1, le=MOST_ROUNDS)]
Above0 = Annotated[Number, Field(gt=0, allow_inf_nan=False)]


class PromptSettings(Keys):
    dir: str | None = key(None, "a folder with templates of your own in place of those in cfg/prompt")
    max_chars: Count = key(60_000, "of one request; what does not fit is left out, the oldest and least useful first")


class SearchSettings(Keys):
    """The keys of cfg/auto_shape.yaml."""

    file: ClassVar[str] = "cfg/auto_shape.yaml"

    num_iters: Rounds = key(5, "rounds")
    shapers_per_iter: Rounds = key(8, "candidates that are sampled in each round")
    retrained: Annotated[int, Field(ge=0, le=10_000)] = key(
        3, "best candidates so far, which train again in each round with its seeds"
    )
    term_variants: Annotated[int, Field(ge=0, le=10_000)] = key(
        0, "of them, from round 2 on: the best with one term of its reward left out, halved or doubled"
    )
    repair: Annotated[int, Field(ge=0, le=1_000)] = key(1, "attempts to mend a candidate that fails its check")
    temperature: Annotated[Number, Field(ge=0, allow_inf_nan=False)] | None = key(
        None, "temperature of sampling; null: the model's own"
    )
    max_output_tokens: Count | None = key(
        None, "tokens of one reply, hidden reasoning included; null: the provider's default"
    )
    max_tokens: Count | None = key(
        None, "tokens of all requests and replies together; then the search ends with what it has"
    )
    max_cost: Above0 | None = key(None, "US dollars for all requests together; then the search ends with what it has")
    reply_timeout: Above0 = key(600, "seconds without a reply after which a request is given up and sent again")
    concurrency: Count = key(8, "requests at once")
    show_baseline: bool = key(True, "whether the model reads the source of the baseline")
    parents: Annotated[
        tuple[Literal["human", "unshaped"], ...], BeforeValidator(as_tuple), Expected("a list of human and unshaped")
    ] = key(("human", "unshaped"), "of evolve and random: baselines from which they start")
    validated: Annotated[int, Field(ge=0, le=10_000)] = key(
        5, "best candidates, which train again after the last round to choose one; 0 or 1: none do"
    )
    validation_seeds: Rounds = key(5, "new seeds, with which they do")
    final_seeds: Annotated[int, Field(ge=0, le=10_000)] = key(
        5, "new seeds, with which the best is trained again and held against both baselines; 0: it is not"
    )
    final_episodes: Count = key(256, "of each of them in the final evaluation")
    prompt: PromptSettings = key(PromptSettings(), "what a request says")


def compose_settings(words: Sequence[str]) -> tuple[SearchSettings, list[str]]:
    """Apply the overrides of keys of cfg/auto_shape.yaml.

    Returns:
        The settings, and the other overrides, which are those of a run.

    Raises:
        UserError: if an override is malformed, names an unknown key, or has an invalid value.
    """
    settings = read_yaml(project_folder("cfg") / "auto_shape.yaml")
    others: list[str] = []
    for word in words:
        if word.split("=")[0].split(".")[0] not in settings:
            others.append(word)
            continue
        with user_input():
            settings = overridden(settings, word)
    return SearchSettings.checked(settings), others


def explain_unknown(error: UserError) -> UserError:
    """Add the search's keys to a run's message about an unknown key, because a search takes the keys of both."""
    if not isinstance(error, UnknownKey):
        return error
    key, names = error.key, fields(SearchSettings)
    same = [name for name in names if name.endswith(f".{key}")]
    hint = f" (did you mean {' or '.join(same)}?)" if same else near_matches(key, names)
    return UserError(f"{error}; those of the search are in {SearchSettings.file}{hint}")
