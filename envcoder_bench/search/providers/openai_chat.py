"""OpenAI's models, and any server that speaks its chat completions: vLLM, Ollama, OpenRouter ..."""

from __future__ import annotations

import re
from typing import Any, Dict, Optional, Set

from envcoder_bench.errors import UserError
from envcoder_bench.search.providers import sdk
from envcoder_bench.search.providers.base import (
    LENGTH,
    REFUSAL,
    STOP,
    ProviderError,
    Reply,
    Request,
    most_input_tokens,
)

_REASONING = re.compile(r"o\d|gpt-([5-9]|\d\d)")  # they take no temperature, and think on the reply's account
_LIMITS = ("max_completion_tokens", "max_tokens")  # the second is older; servers of others often know it alone


class OpenAIChat:
    """A model behind ``POST /chat/completions``."""

    recorded = False

    def __init__(
        self, model: str, base_url: Optional[str], timeout: float, max_output_tokens: Optional[int] = None
    ) -> None:
        """Raises UserError where the key, the SDK or a sound address is missing."""
        url = sdk.read_base_url(base_url, "OPENAI_BASE_URL")
        key = sdk.read_key("OPENAI_API_KEY", url)
        self._sdk = sdk.import_sdk("openai")
        self._client = self._sdk.OpenAI(
            api_key=key,
            base_url=url or "https://api.openai.com/v1",
            max_retries=0,  # complete_all tries again, and keeps a record of it
            http_client=sdk.http_client(self._sdk, timeout),
        )
        self._timeout = timeout
        reasons = _REASONING.match(model) is not None
        self._not_taken: Set[str] = {"temperature"} if reasons else set()
        self._limits = _LIMITS if reasons or not url else _LIMITS[::-1]
        self.model = model
        self.name = f"openai:{model}" + (f"@{url}" if url else "")
        self.default_output_tokens = max_output_tokens or (32768 if reasons else 4096)

    def complete(self, request: Request) -> Reply:
        """Ask once; see Provider."""
        for _ in range(len(_LIMITS) + 2):
            try:
                response = sdk.call(
                    self._sdk,
                    self._client.chat.completions.create,
                    self._parameters(request),
                    self.name,
                    self._timeout,
                )
                return self._reply(request, response)
            except sdk.NotTaken as error:
                self._not_taken.add(str(error))
            except sdk.Refused as error:
                return Reply("", finish=REFUSAL, error=f"{self.name} declined: {error}")
        raise UserError(f"{self.name} takes neither {' nor '.join(_LIMITS)}")

    def _parameters(self, request: Request) -> Dict[str, Any]:
        system = [{"role": "system", "content": request.system}] if request.system else []
        limit = next((name for name in self._limits if name not in self._not_taken), self._limits[0])
        parameters: Dict[str, Any] = {
            "model": self.model,
            "messages": system + [{"role": m.role, "content": m.text} for m in request.messages],
            limit: request.max_output_tokens or self.default_output_tokens,
        }
        if request.temperature is not None and "temperature" not in self._not_taken:
            parameters["temperature"] = request.temperature
        return parameters

    def _reply(self, request: Request, response: Any) -> Reply:
        choices = getattr(response, "choices", None)
        if not choices or getattr(choices[0], "message", None) is None:
            said = sdk.one_line(getattr(response, "error", None) or "it has no choices")
            raise ProviderError("malformed", f"the reply of {self.name} cannot be read: {said}")
        message, reason = choices[0].message, choices[0].finish_reason
        text = sdk.clean_text(message.content)
        usage = getattr(response, "usage", None)
        # a server that does not count is taken at the most that it can be, so that budgets hold
        input_tokens = getattr(usage, "prompt_tokens", None)
        output_tokens = getattr(usage, "completion_tokens", None)
        input_tokens = most_input_tokens(request) if input_tokens is None else input_tokens
        output_tokens = len(text.encode()) if output_tokens is None else output_tokens
        refusal = getattr(message, "refusal", None)
        if refusal or reason == "content_filter":
            said = refusal or "its content filter stopped the reply"
            finish, error = REFUSAL, f"{self.name} declined: {sdk.one_line(said)}"
        elif reason == "length":
            finish, error = LENGTH, f"the reply was cut off after {output_tokens} tokens"
        else:
            finish, error = STOP, ""
        return Reply(text, input_tokens, output_tokens, finish=finish, error=error)
