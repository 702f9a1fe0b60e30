"""The choice of the proposer or model by ``--llm``, and the two protocols of servers."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from envcoder_bench.core.errors import UserError, near_matches
from envcoder_bench.core.plain_text import one_line
from envcoder_bench.search.providers import sdk
from envcoder_bench.search.providers.base import LENGTH, REFUSAL, STOP, Provider, Reply, Request, max_input_tokens
from envcoder_bench.search.providers.budget import read_prices
from envcoder_bench.search.providers.transcript import ReplayProvider

EVOLVE, RANDOM = WITHOUT_MODEL = ("evolve", "random")
OPENAI = "openai"
ANTHROPIC = "anthropic"
REPLAY = "replay"

# a new kind needs a branch in make_provider, too: what no branch takes there is Anthropic's; kind_of's error names it
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
    chat = OpenAIChat if kind == OPENAI else AnthropicMessages
    return chat(model, base_url, timeout, notify)


# the two protocols of servers


_REASONING = re.compile(r"o\d|gpt-([5-9]|\d\d)")  # no temperature; reasoning counts as output
_LIMITS = ("max_completion_tokens", "max_tokens")  # other servers often support only the second, older one


class OpenAIChat(sdk.Model):
    """A model behind ``POST /chat/completions``."""

    def __init__(self, model: str, base_url: str | None, timeout: float, notify: Callable[[str], None]) -> None:
        """Create the client. Raises UserError if the key or the SDK is missing or the URL is invalid."""
        super().__init__("openai", model, base_url, timeout, notify)
        self._client = self.sdk.OpenAI(base_url=self.url or "https://api.openai.com/v1", **self.client)
        reasons = _REASONING.match(model.split("/")[-1]) is not None
        self.unsupported = {"temperature"} if reasons else set()
        self._limits = _LIMITS if reasons or not self.url else _LIMITS[::-1]
        self.default_output_tokens = 32768 if reasons else 4096

    def complete(self, request: Request) -> Reply:
        """Send a request; see Provider."""
        parameters, read = partial(self._parameters, request), partial(self._reply, request)
        return self.call(self._client.chat.completions.create, parameters, read)

    def _parameters(self, request: Request) -> dict[str, Any]:
        system = [{"role": "system", "content": request.system}] if request.system else []
        limit = next((name for name in self._limits if name not in self.unsupported), self._limits[0])
        return {
            "model": self.model,
            "messages": system + [{"role": m.role, "content": m.text} for m in request.messages],
            limit: request.max_output_tokens or self.default_output_tokens,
            **self.temperature(request.temperature),
        }

    def _reply(self, request: Request, response: Any) -> Reply:
        choices = response.choices[:1]
        text = "".join(self.hide(sdk.joined_text(choice.message.content)) for choice in choices)
        usage = getattr(response, "usage", None)
        input_tokens = sdk.count(getattr(usage, "prompt_tokens", None), max_input_tokens(request))
        output_tokens = sdk.count(getattr(usage, "completion_tokens", None), len(text.encode()))
        finish, error = STOP, ""
        if not choices:
            error = f"{self.name} sent a reply without any choice"
        elif (refusal := getattr(choices[0].message, "refusal", None)) or choices[0].finish_reason == "content_filter":
            message = refusal or "its content filter stopped the reply"
            finish, error = REFUSAL, f"{self.name} declined: {one_line(self.hide(str(message)), sdk.WIDEST)}"
        elif choices[0].finish_reason == "length":
            limit = request.max_output_tokens or self.default_output_tokens
            finish, error = LENGTH, sdk.cut_off(output_tokens or limit)
        return Reply(text, input_tokens, output_tokens, finish=finish, error=error)


_FIRST_GENERATIONS = re.compile(r"claude-([123](\D|$)|instant)")  # limited to 4,096 output tokens
_CUT_OFF = ("max_tokens", "model_context_window_exceeded")
_CACHED = {"cache_control": {"type": "ephemeral"}}  # OpenAI caches the begin of a prompt without being asked


class AnthropicMessages(sdk.Model):
    """A model behind ``POST /v1/messages``."""

    def __init__(self, model: str, base_url: str | None, timeout: float, notify: Callable[[str], None]) -> None:
        """Create the client. Raises UserError if the key or the SDK is missing or the URL is invalid."""
        super().__init__("anthropic", model, base_url, timeout, notify)
        base = re.sub(r"/v1$", "", self.url) or "https://api.anthropic.com"  # the SDK adds /v1
        self._client = self.sdk.Anthropic(base_url=base, **self.client)
        self.default_output_tokens = 4096 if _FIRST_GENERATIONS.match(model) else 32000

    def complete(self, request: Request) -> Reply:
        """Send a request; see Provider."""
        parameters, read = partial(self._parameters, request), partial(self._reply, request)
        return self.call(self._client.messages.create, parameters, read)

    def _parameters(self, request: Request) -> dict[str, Any]:
        return {
            "model": self.model,
            "max_tokens": request.max_output_tokens or self.default_output_tokens,
            "messages": [{"role": m.role, "content": m.text} for m in request.messages],
            # the part that all requests of a search begin with, which is then read from the provider's cache
            **({"system": [{"type": "text", "text": request.system, **_CACHED}]} if request.system else {}),
            "extra_body": self.temperature(request.temperature),  # newer SDKs have no argument for it
        }

    def _reply(self, request: Request, response: Any) -> Reply:
        text = "".join(block.text for block in response.content if block.type == "text")
        text = self.hide(sdk.clean_text(text))
        usage = getattr(response, "usage", None)
        # tokens that the provider read from its cache, or wrote to it, are counted apart
        cached = (getattr(usage, f"cache_{access}_input_tokens", None) for access in ("creation", "read"))
        input_tokens = sdk.count(getattr(usage, "input_tokens", None), max_input_tokens(request))
        input_tokens += sum(sdk.count(tokens, 0) for tokens in cached)
        output_tokens = sdk.count(getattr(usage, "output_tokens", None), len(text.encode()))
        if response.stop_reason == "refusal":
            finish, error = REFUSAL, f"{self.name} declined to answer"
        elif response.stop_reason in _CUT_OFF:
            finish, error = LENGTH, sdk.cut_off(output_tokens)
        else:
            finish, error = STOP, ""
        return Reply(text, input_tokens, output_tokens, finish=finish, error=error)
