"""Anthropic's models, and other servers with its messages protocol."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from envcoder_bench.search.providers import sdk
from envcoder_bench.search.providers.base import LENGTH, REFUSAL, STOP, Reply, Request, max_input_tokens

_FIRST_GENERATIONS = re.compile(r"claude-([123](\D|$)|instant)")  # limited to 4,096 output tokens
_CUT_OFF = ("max_tokens", "model_context_window_exceeded")


class AnthropicMessages(sdk.Model):
    """A model behind ``POST /v1/messages``."""

    max_replies = 1

    def __init__(self, model: str, base_url: str | None, timeout: float, notify: Callable[[str], None]) -> None:
        """Create the client. Raises UserError if the key or the SDK is missing or the URL is invalid."""
        super().__init__("anthropic", model, base_url, timeout, notify)
        base = re.sub(r"/v1$", "", self.url) or "https://api.anthropic.com"  # the SDK adds /v1
        self._client = self.sdk.Anthropic(base_url=base, **self.client)
        self.default_output_tokens = 4096 if _FIRST_GENERATIONS.match(model) else 32000

    def complete(self, request: Request, count: int = 1) -> list[Reply]:
        """Send a request; see Provider."""
        parameters, read = partial(self._parameters, request), partial(self._replies, request)
        return self.call(self._client.messages.create, parameters, read)

    def _parameters(self, request: Request) -> dict[str, Any]:
        return {
            "model": self.model,
            "max_tokens": request.max_output_tokens or self.default_output_tokens,
            "messages": [{"role": m.role, "content": m.text} for m in request.messages],
            **({"system": request.system} if request.system else {}),
            "extra_body": self.temperature(request.temperature),  # newer SDKs have no argument for it
        }

    def _replies(self, request: Request, response: Any) -> list[Reply]:
        text = "".join(block.text for block in response.content if block.type == "text")
        text = self.hide(sdk.clean_text(text))
        usage = getattr(response, "usage", None)
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
        return [Reply(text, input_tokens, output_tokens, finish=finish, error=error)]
