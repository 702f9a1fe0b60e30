"""The choice of the proposer or model by ``--llm``."""

import re
from collections.abc import Callable
from pathlib import Path

from envcoder_bench.core.errors import UserError, near_matches
from envcoder_bench.search.providers.base import Provider
from envcoder_bench.search.providers.budget import read_prices
from envcoder_bench.search.providers.transcript import ReplayProvider

EVOLVE, RANDOM = WITHOUT_MODEL = ("evolve", "random")
OPENAI = "openai"
ANTHROPIC = "anthropic"
REPLAY = "replay"

# a new kind needs a branch in make_provider, too: what no branch takes there is Anthropic's
_PATTERNS = (
    (OPENAI, re.compile(r"(?i:(chat)?gpt-.+|o\d.*)|openai:.+")),
    (ANTHROPIC, re.compile(r"(?i:claude-.+)|anthropic:.+")),
    (REPLAY, re.compile(r"replay:.+")),
    (EVOLVE, re.compile(EVOLVE)),
    (RANDOM, re.compile(RANDOM)),
)


def kind_of(llm: str) -> str:
    """Return the kind of a value of ``--llm``: ``openai``, ``anthropic``, ``replay``, ``evolve`` or ``random``.

    Raises:
        UserError: if it is none of them.
    """
    for kind, pattern in _PATTERNS:
        if pattern.fullmatch(llm):
            return kind
    names = [*read_prices(), *WITHOUT_MODEL, "openai:NAME", "anthropic:NAME", "replay:FILE"]
    raise UserError(
        f"--llm {llm}: no such model{near_matches(llm.lower(), names)}; give gpt-*, o* (o3, o4-mini) or claude-*, "
        "openai:NAME or anthropic:NAME (also for servers of your own, with --base_url), replay:FILE, evolve or random"
    )


def make_provider(
    llm: str, base_url: str | None = None, timeout: float = 600.0, notify: Callable[[str], None] = lambda line: None
) -> Provider:
    """Create the provider of a value of ``--llm``, without sending a request.

    Args:
        llm: value of ``--llm``.
        base_url: URL of another server with the provider's protocol.
        timeout: time limit of one reply, s.
        notify: called with a line for each failure that is sent again, from any thread.

    Raises:
        UserError: for an unknown model, a missing key or package, an invalid URL, or an invalid transcript.
    """
    kind = kind_of(llm)
    if kind in WITHOUT_MODEL:
        raise UserError(f"--llm {kind} uses no model")
    if kind == REPLAY:
        if base_url:
            raise UserError(f"--base_url cannot be used with --llm {llm}, which uses no server")
        return ReplayProvider(Path(llm.split(":", 1)[1]))
    model = llm[len(kind) + 1 :] if llm.startswith(f"{kind}:") else llm.lower()  # GPT-4o; a NAME stays as it is
    if kind == OPENAI:
        from envcoder_bench.search.providers.openai_chat import OpenAIChat

        return OpenAIChat(model, base_url, timeout, notify)
    from envcoder_bench.search.providers.anthropic_messages import AnthropicMessages

    return AnthropicMessages(model, base_url, timeout, notify)
