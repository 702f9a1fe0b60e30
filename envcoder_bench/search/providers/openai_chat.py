"""OpenAI's models, and other servers with its chat completions protocol: vLLM, Ollama, OpenRouter ..."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from envcoder_bench.search.providers import sdk
from envcoder_bench.search.providers.base import LENGTH, REFUSAL, STOP, Reply, Request, max_input_tokens

_REASONING = re.compile(r"o\d|gpt-([5-9]|\d\d)")  # no temperature; reasoning counts as output
_LIMITS = ("max_completion_tokens", "max_tokens")  # other servers often support only the second, older one
MAX_REPLIES = 128  # OpenAI's own limit of n


class OpenAIChat(sdk.Model):
    """A model behind ``POST /chat/completions``."""

    def __init__(self, model: str, base_url: str | None, timeout: float, notify: Callable[[str], None]) -> None:
        """Create the client. Raises UserError if the key or the SDK is missing or the URL is invalid."""
        super().__init__("openai", model, base_url, timeout, notify)
        self._client = self.sdk.OpenAI(base_url=self.url or "https://api.openai.com/v1", **self.client)
        self._max_replies = MAX_REPLIES
        reasons = _REASONING.match(model.split("/")[-1]) is not None
        self.unsupported = {"temperature"} if reasons else set()
        self._limits = _LIMITS if reasons or not self.url else _LIMITS[::-1]
        self.default_output_tokens = 32768 if reasons else 4096

    @property
    def max_replies(self) -> int:
        return 1 if "n" in self.unsupported else self._max_replies

    def complete(self, request: Request, count: int = 1) -> list[Reply]:
        """Send a request; see Provider. Servers without ``n`` are asked for one reply."""
        # the number of replies may be what fails: it is lowered instead of sent again
        client = self._client if count == 1 else self._client.with_options(max_retries=0)
        parameters, read = partial(self._parameters, request, count), partial(self._replies, request, count)
        return self.call(client.chat.completions.create, parameters, read)

    def _parameters(self, request: Request, count: int) -> dict[str, Any]:
        system = [{"role": "system", "content": request.system}] if request.system else []
        limit = next((name for name in self._limits if name not in self.unsupported), self._limits[0])
        return {
            "model": self.model,
            "messages": system + [{"role": m.role, "content": m.text} for m in request.messages],
            limit: request.max_output_tokens or self.default_output_tokens,
            **({"n": count} if min(count, self.max_replies) > 1 else {}),
            **self.temperature(request.temperature),
        }

    def _replies(self, request: Request, count: int, response: Any) -> list[Reply]:
        """Return a reply for each choice. Of several, only the sum of their tokens is known."""
        choices = response.choices[:count]
        if 0 < len(choices) < count:  # for instance Ollama accepts n but returns one reply
            self._max_replies = len(choices)
        texts = [self.hide(sdk.joined_text(choice.message.content)) for choice in choices]
        usage = getattr(response, "usage", None)
        input_tokens = sdk.count(getattr(usage, "prompt_tokens", None), max_input_tokens(request))
        limit = sum(len(text.encode()) for text in texts)
        output_tokens = sdk.count(getattr(usage, "completion_tokens", None), limit)
        if not choices:
            return [Reply("", input_tokens, output_tokens, error=f"{self.name} sent a reply without any choice")]
        inputs, outputs = sdk.shares(input_tokens, len(texts)), sdk.shares(output_tokens, len(texts))
        replies = []
        for k, text in enumerate(texts):
            finish, error = self._end(request, choices[k], output_tokens if len(texts) == 1 else 0)
            replies.append(Reply(text, inputs[k], outputs[k], finish=finish, error=error))
        return replies

    def _end(self, request: Request, choice: Any, tokens: int) -> tuple[str, str]:
        """Return ``finish`` and ``error`` of a reply; ``tokens`` is 0 if unknown."""
        refusal = getattr(choice.message, "refusal", None)
        if refusal or choice.finish_reason == "content_filter":
            message = refusal or "its content filter stopped the reply"
            return REFUSAL, f"{self.name} declined: {sdk.one_line(self.hide(str(message)))}"
        if choice.finish_reason == "length":
            return LENGTH, sdk.cut_off(tokens or request.max_output_tokens or self.default_output_tokens)
        return STOP, ""
