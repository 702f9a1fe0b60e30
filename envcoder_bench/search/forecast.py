"""What a search will cost and how long it will take, as ranges with what they assume."""

from dataclasses import dataclass

from envcoder_bench.run.prepare import forecast
from envcoder_bench.run.prepare.forecast import Physics, rounded
from envcoder_bench.run.seeds import seed_count
from envcoder_bench.run.spec import RunConfig
from envcoder_bench.search.providers.base import Provider, Request
from envcoder_bench.search.providers.budget import Price
from envcoder_bench.search.settings import SearchSettings
from envcoder_bench.tasks.base import BASELINE_FILES

CHARS_PER_TOKEN = 4.0, 2.5  # English and code: usual, and least
REPLY_TOKENS = 500  # a candidate without hidden reasoning


@dataclass(frozen=True)
class Range:
    """What is expected, from ``low`` to ``high``."""

    low: float
    high: float


def tokens(settings: SearchSettings, provider: Provider, request: Request) -> tuple[Range, Range]:
    """Return the tokens of all prompts and of all replies.

    Low: no prompt longer than the first, no repairs, short replies. High: every candidate is repaired as often as the
    settings allow, every prompt and every reply has its largest length.
    """
    replies = settings.num_iters * settings.shapers_per_iter
    first = len(request.system) + sum(len(message.text) for message in request.messages)
    longest = max(first, settings.prompt.max_chars)
    limit = request.max_output_tokens or provider.default_output_tokens
    repaired = replies * (1 + settings.repair)
    prompts = Range(replies * first / CHARS_PER_TOKEN[0], repaired * longest / CHARS_PER_TOKEN[1])
    return prompts, Range(float(replies * min(REPLY_TOKENS, limit)), float(repaired * limit))


def cost_line(settings: SearchSettings, provider: Provider, request: Request, price: Price | None) -> str:
    """Describe tokens and cost; the limits of the settings bound them."""
    prompts, replies = tokens(settings, provider, request)
    low, high = prompts.low + replies.low, prompts.high + replies.high
    parts = [f"{rounded(low)} to {rounded(high)} tokens"]
    if price is not None:
        least = price.of(int(prompts.low), int(replies.low))
        parts.append(f"${least:.2g} to ${price.of(int(prompts.high), int(replies.high)):.2g}")
    limit = request.max_output_tokens or provider.default_output_tokens
    assumed = f"replies of {min(REPLY_TOKENS, limit):,} to {limit:,} tokens, no candidate or every one repaired"
    return f"{', '.join(parts)} ({assumed}; a search mostly stays near the first number)"


def time_line(cfg: RunConfig, settings: SearchSettings, physics: Physics | None, devices: int = 1) -> str:
    """Describe the env-steps of the search and the time of training, without that of the model's replies.

    All rounds, the validation and the final evaluation train to the end.
    """
    rounds, validation, final = _groups(cfg, settings)
    groups = rounds + validation
    played = 0.0
    if physics is not None:
        of_group, of_final = (
            forecast.evaluation_steps(cfg, physics, episodes)
            for episodes in (cfg.evaluation.final_episodes, settings.final_episodes)
        )
        played = groups * of_group + final * of_final
    return forecast.time_line(cfg, forecast.training_steps(cfg, groups + final), played, physics, devices)


def _groups(cfg: RunConfig, settings: SearchSettings) -> tuple[int, int, int]:
    """Return the groups of all rounds, of the validation, and of the final evaluation.

    The best so far train in each round but the first.
    """
    others, count = len(BASELINE_FILES), settings.shapers_per_iter
    again = sum(min(settings.retrained, k * count) for k in range(1, settings.num_iters))
    rounds = settings.num_iters * (count + others) + again
    validated = min(settings.validated, settings.num_iters * count)
    validation = validated * settings.validation_seeds if validated > 1 else 0
    return rounds * seed_count(cfg), validation, (1 + others) * settings.final_seeds


def time_left(cfg: RunConfig, settings: SearchSettings, number: int, writing: float, training: float) -> float:
    """Return the seconds of the later rounds and of what comes after them, from those of round ``number``."""
    rounds, validation, final = _groups(cfg, settings)
    later = settings.num_iters - number
    return later * writing + (later + (validation + final) * settings.num_iters / rounds) * training
