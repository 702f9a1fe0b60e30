"""OpenAI's models, and any server that speaks its chat completions: vLLM, Ollama, OpenRouter ..."""

from __future__ import annotations

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
    most_input_tokens,
)

_REASONING = re.compile(r"o\d|gpt-([5-9]|\d\d)")  # they take no temperature, and think on the reply's account
_LIMITS = ("max_completion_tokens", "max_tokens")  # the second is older; servers of others often know it alone
MOST_REPLIES = 128  # OpenAI's own limit of n


class OpenAIChat:
    """A model behind ``POST /chat/completions``."""

    recorded = False

    def __init__(self, model: str, base_url: str | None, timeout: float) -> None:
        """Raises UserError where the key, the SDK or a sound address is missing."""
        url = sdk.read_base_url(base_url, "OPENAI_BASE_URL")
        key = sdk.read_key("OPENAI_API_KEY", url)
        self._sdk = sdk.import_sdk("openai")
        self._client = self._sdk.OpenAI(
            api_key=key,
            base_url=url or "https://api.openai.com/v1",
            max_retries=0,  # complete_all tries again, and keeps a record of it
            http_client=transport.http_client(self._sdk, timeout),
        )
        self._timeout = timeout
        self._most_replies = MOST_REPLIES
        reasons = _REASONING.match(model.split("/")[-1]) is not None
        self._not_taken: set[str] = {"temperature"} if reasons else set()
        self._limits = _LIMITS if reasons or not url else _LIMITS[::-1]
        self.model = model
        self.name = sdk.provider_name("openai", model, url)
        self.default_output_tokens = 32768 if reasons else 4096

    @property
    def most_replies(self) -> int:
        return 1 if "n" in self._not_taken else self._most_replies

    def complete(self, request: Request) -> Reply:
        """Ask once; see Provider."""
        return self.complete_several(request, 1)[0]

    def complete_several(self, request: Request, count: int) -> list[Reply]:
        """Ask once for several replies; see SeveralReplies. A server that takes no ``n`` is asked for one."""
        create = self._client.chat.completions.create
        for _ in range(len(_LIMITS) + 3):
            count = min(count, self.most_replies)
            read = partial(self._replies, request, count)
            try:
                return sdk.call(self._sdk, create, self._parameters(request, count), read, self.name, self._timeout)
            except sdk.NotTaken as error:
                self._not_taken.add(str(error))
            except sdk.Refused as error:
                return [Reply("", finish=REFUSAL, error=f"{self.name} declined: {error}")]
        raise UserError(f"{self.name} takes neither {' nor '.join(_LIMITS)}")

    def _parameters(self, request: Request, count: int) -> dict[str, Any]:
        system = [{"role": "system", "content": request.system}] if request.system else []
        limit = next((name for name in self._limits if name not in self._not_taken), self._limits[0])
        parameters: dict[str, Any] = {
            "model": self.model,
            "messages": system + [{"role": m.role, "content": m.text} for m in request.messages],
            limit: request.max_output_tokens or self.default_output_tokens,
        }
        if count > 1:
            parameters["n"] = count
        if request.temperature is not None and "temperature" not in self._not_taken:
            parameters["temperature"] = request.temperature
        return parameters

    def _replies(self, request: Request, count: int, response: Any) -> list[Reply]:
        """A reply for each choice. Of several, only the sum of their tokens is known."""
        choices = [response.choices[k] for k in range(min(max(len(response.choices), 1), count))]
        if len(choices) < count:  # Ollama, for one, takes n and gives one reply
            self._most_replies = len(choices)
        texts = [sdk.clean_text(choice.message.content) for choice in choices]
        usage = getattr(response, "usage", None)
        input_tokens = sdk.count(getattr(usage, "prompt_tokens", None), most_input_tokens(request))
        most = sum(len(text.encode()) for text in texts)
        output_tokens = sdk.count(getattr(usage, "completion_tokens", None), most)
        inputs, outputs = sdk.shares(input_tokens, len(texts)), sdk.shares(output_tokens, len(texts))
        replies = []
        for k, text in enumerate(texts):
            finish, error = self._end(request, choices[k], output_tokens if len(texts) == 1 else 0)
            replies.append(Reply(text, inputs[k], outputs[k], finish=finish, error=error))
        return replies

    def _end(self, request: Request, choice: Any, tokens: int) -> tuple[str, str]:
        """How a reply ended, and what is wrong with it; ``tokens``: 0 where they are not known."""
        refusal = getattr(choice.message, "refusal", None)
        if refusal or choice.finish_reason == "content_filter":
            said = refusal or "its content filter stopped the reply"
            return REFUSAL, f"{self.name} declined: {sdk.one_line(said)}"
        if choice.finish_reason == "length":
            return LENGTH, sdk.cut_off(tokens or request.max_output_tokens or self.default_output_tokens)
        return STOP, ""
