"""OpenAI's models, and other servers with its chat completions protocol: vLLM, Ollama, OpenRouter ..."""

import re
from functools import partial
from typing import Any

from envcoder_bench.core.errors import UserError
from envcoder_bench.search.providers import sdk, transport
from envcoder_bench.search.providers.base import (
    LENGTH,
    REFUSAL,
    STOP,
    Reply,
    Request,
    max_input_tokens,
)
from envcoder_bench.search.providers.secrets import hiding

_REASONING = re.compile(r"o\d|gpt-([5-9]|\d\d)")  # no temperature; reasoning counts as output
_LIMITS = ("max_completion_tokens", "max_tokens")  # other servers often support only the second, older one
MAX_REPLIES = 128  # OpenAI's own limit of n


class OpenAIChat:
    """A model behind ``POST /chat/completions``."""

    recorded = False

    def __init__(self, model: str, base_url: str | None, timeout: float) -> None:
        """Create the client. Raises UserError if the key or the SDK is missing or the URL is invalid."""
        url = sdk.read_base_url(base_url, "OPENAI_BASE_URL")
        key = sdk.read_key("OPENAI_API_KEY", url)
        self._sdk = sdk.import_sdk("openai")
        self._client = self._sdk.OpenAI(
            api_key=key,
            base_url=url or "https://api.openai.com/v1",
            max_retries=0,  # complete_all retries, and records it
            http_client=transport.http_client(self._sdk, timeout),
        )
        self._timeout, self._hide = timeout, hiding(key, url)
        self._max_replies = MAX_REPLIES
        reasons = _REASONING.match(model.split("/")[-1]) is not None
        self._unsupported: set[str] = {"temperature"} if reasons else set()
        self._ignored = sdk.Ignored()
        self._limits = _LIMITS if reasons or not url else _LIMITS[::-1]
        self.model = model
        self.name = sdk.provider_name("openai", model, url)
        self.default_output_tokens = 32768 if reasons else 4096

    @property
    def max_replies(self) -> int:
        return 1 if "n" in self._unsupported else self._max_replies

    def complete(self, request: Request) -> Reply:
        """Send one request; see Provider."""
        return self.complete_several(request, 1)[0]

    def complete_several(self, request: Request, count: int) -> list[Reply]:
        """Send one request for several replies; see SeveralReplies. Servers without ``n`` are asked for one."""
        create = self._client.chat.completions.create
        for _ in range(len(_LIMITS) + 3):
            count = min(count, self.max_replies)
            read = partial(self._replies, request, count)
            try:
                return sdk.call(
                    self._sdk, create, self._parameters(request, count), read, self.name, self._timeout, self._hide
                )
            except sdk.UnsupportedParameter as error:
                self._unsupported.add(str(error))
            except sdk.Refused as error:
                return [Reply("", finish=REFUSAL, error=f"{self.name} declined: {error}")]
        raise UserError(f"{self.name} takes neither {' nor '.join(_LIMITS)}")

    def _parameters(self, request: Request, count: int) -> dict[str, Any]:
        system = [{"role": "system", "content": request.system}] if request.system else []
        limit = next((name for name in self._limits if name not in self._unsupported), self._limits[0])
        parameters: dict[str, Any] = {
            "model": self.model,
            "messages": system + [{"role": m.role, "content": m.text} for m in request.messages],
            limit: request.max_output_tokens or self.default_output_tokens,
        }
        if count > 1:
            parameters["n"] = count
        if "temperature" in self._unsupported:
            self._ignored.warn(self.name, request.temperature)
        elif request.temperature is not None:
            parameters["temperature"] = request.temperature
        return parameters

    def _replies(self, request: Request, count: int, response: Any) -> list[Reply]:
        """Return a reply for each choice. Of several, only the sum of their tokens is known."""
        choices = response.choices[:count]
        if 0 < len(choices) < count:  # for instance Ollama accepts n but returns one reply
            self._max_replies = len(choices)
        texts = [self._hide(sdk.joined_text(choice.message.content)) for choice in choices]
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
            return REFUSAL, f"{self.name} declined: {sdk.one_line(self._hide(str(message)))}"
        if choice.finish_reason == "length":
            return LENGTH, sdk.cut_off(tokens or request.max_output_tokens or self.default_output_tokens)
        return STOP, ""
