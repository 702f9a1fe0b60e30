"""What a search will cost and how long it will take, as ranges with what they assume."""

import itertools
import time
from dataclasses import dataclass

import torch

from envcoder_bench.core.words import duration
from envcoder_bench.run.seeds import seed_count
from envcoder_bench.run.spec import RunConfig
from envcoder_bench.search.providers.base import Provider, Request
from envcoder_bench.search.providers.budget import Price
from envcoder_bench.search.settings import SearchSettings
from envcoder_bench.tasks.base import BASELINE_FILES, Task
from mujoco_batches.process import usable_cpus

CHARS_PER_TOKEN = 4.0, 2.5  # English and code: usual, and least
REPLY_TOKENS = 500  # a candidate without hidden reasoning
PHYSICS_STEPS = 20
PHYSICS_SHARE = 0.9, 0.25  # share of the time of training, without the learner's
EPISODES = 0.1, 1.0  # share of the full length
FLOPS_PER_CORE = 2e10, 2e9  # the learner's: 32-bit, small matrices
GPU_STEPS = 4e6, 3e5  # env-steps/s: one H100 with hundreds of candidates, or with few


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
    together = max(1, min(provider.max_replies, settings.replies_per_request, settings.shapers_per_iter))
    first = len(request.system) + sum(len(message.text) for message in request.messages)
    longest = max(first, settings.prompt.max_chars)
    limit = request.max_output_tokens or provider.default_output_tokens
    repaired = replies * (1 + settings.repair)
    prompts = Range(replies / together * first / CHARS_PER_TOKEN[0], repaired * longest / CHARS_PER_TOKEN[1])
    return prompts, Range(float(replies * min(REPLY_TOKENS, limit)), float(repaired * limit))


def cost_line(settings: SearchSettings, provider: Provider, request: Request, price: Price | None) -> str:
    """Describe tokens and cost; the limits of the settings bound them."""
    prompts, replies = tokens(settings, provider, request)
    low, high = prompts.low + replies.low, prompts.high + replies.high
    parts = [f"{_round(low)} to {_round(high)} tokens"]
    if price is not None:
        least = price.of(int(prompts.low), int(replies.low))
        parts.append(f"${least:.2g} to ${price.of(int(prompts.high), int(replies.high)):.2g}")
    limit = request.max_output_tokens or provider.default_output_tokens
    assumed = f"replies of {min(REPLY_TOKENS, limit):,} to {limit:,} tokens, no candidate or every one repaired"
    return f"{', '.join(parts)} ({assumed}; a search mostly stays near the first number)"


def time_line(cfg: RunConfig, settings: SearchSettings, probe: Task | None, devices: int = 1) -> str:
    """Describe the env-steps of the search and the time of training, without that of the model's replies."""
    steps = training_steps(cfg, settings)
    size = f"{_round(steps)} env-steps"
    if cfg.device != "cpu":
        low, high = (steps / speed / devices for speed in GPU_STEPS)
        return f"{size}, {_span(low, high)} of training (at {GPU_STEPS[1]:,.0f} to {GPU_STEPS[0]:,.0f} env-steps/s)"
    if probe is None:
        return size
    # CPU: both the physics and the learner take time, and the physics is measured here
    flops, speed, cores = learner_flops(cfg, probe), physics_speed(probe), usable_cpus()
    played = evaluation_steps(cfg, settings, probe)
    low, high = (
        (steps + share * played) / speed / physics + steps * flops / (per_core * cores)
        for share, physics, per_core in zip(EPISODES, PHYSICS_SHARE, FLOPS_PER_CORE)
    )
    return f"{size}, {_span(low, high)} of training and evaluation (from the speed of the physics here, on idle cores)"


def training_steps(cfg: RunConfig, settings: SearchSettings) -> float:
    """Return the env-steps of all rounds, of the validation and of the final evaluation, all trained to the end."""
    horizon = int(cfg.params["config"].get("horizon_length", 1))
    return float(sum(_groups(cfg, settings)) * cfg.num_envs_per_candidate * cfg.learning_iterations * horizon)


def _groups(cfg: RunConfig, settings: SearchSettings) -> tuple[int, int]:
    """Return the groups of all rounds, and of what comes after them: validation and final evaluation.

    The best so far train in each round but the first.
    """
    others, count = len(BASELINE_FILES), settings.shapers_per_iter
    again = sum(min(settings.retrained, k * count) for k in range(1, settings.num_iters))
    rounds = settings.num_iters * (count + others) + again
    validated = min(settings.validated, settings.num_iters * count)
    validation = validated * settings.validation_seeds if validated > 1 else 0
    return rounds * seed_count(cfg), validation + (1 + others) * settings.final_seeds


def evaluation_steps(cfg: RunConfig, settings: SearchSettings, probe: Task) -> float:
    """Return the steps of all evaluations of the search if every episode has its full length."""
    asked, full = cfg.evaluation, probe.max_episode_length
    groups, final = _groups(cfg, settings)
    points = asked.points * asked.num_envs * min(asked.point_steps or full, full)
    return float((groups + final) * points + (groups * asked.final_episodes + final * settings.final_episodes) * full)


def time_left(cfg: RunConfig, settings: SearchSettings, number: int, writing: float, training: float) -> float:
    """Return the seconds of the later rounds and of what comes after them, from those of round ``number``."""
    rounds, final = _groups(cfg, settings)
    later = settings.num_iters - number
    return later * writing + (later + final * settings.num_iters / rounds) * training


def learner_flops(cfg: RunConfig, probe: Task) -> float:
    """Return the floating-point operations of a step: the rollout's, and those of the epochs forwards and backwards."""
    network = cfg.params.get("network", {})
    units = [int(n) for n in network.get("mlp", {}).get("units", ())]
    # observations have some numbers for each joint
    widths = [4 * probe.num_dofs, *units, probe.num_dofs]
    weights = sum(a * b for a, b in itertools.pairwise(widths))
    return 2.0 * weights * (1 + 3 * int(cfg.params["config"].get("mini_epochs", 1)))


def physics_speed(probe: Task) -> float:
    """Measure the env-steps per second of a small simulation; its state changes."""
    command = torch.zeros(probe.num_envs, probe.num_dofs, device=probe.device)
    probe.step(command)
    began = time.perf_counter()
    for _ in range(PHYSICS_STEPS):
        probe.step(command)
    return PHYSICS_STEPS * probe.num_envs / (time.perf_counter() - began)


def _span(low: float, high: float) -> str:
    return f"{duration(low)} to {duration(high)}"


def _round(number: float) -> str:
    """Return a number with two digits, as words for millions."""
    digits = float(f"{number:.2g}")
    return f"{digits / 1e6:,.3g} million" if digits >= 1e6 else f"{digits:,.0f}"
