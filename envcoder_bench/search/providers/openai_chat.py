"""OpenAI's models, and any server that speaks its chat completions: vLLM, Ollama, OpenRouter ..."""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Dict, Optional, Set

from envcoder_bench.errors import UserError
from envcoder_bench.search.providers import sdk
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
        reasons = _REASONING.match(model.split("/")[-1]) is not None
        self._not_taken: Set[str] = {"temperature"} if reasons else set()
        self._limits = _LIMITS if reasons or not url else _LIMITS[::-1]
        self.model = model
        self.name = sdk.provider_name("openai", model, url)
        self.default_output_tokens = max_output_tokens or (32768 if reasons else 4096)

    def complete(self, request: Request) -> Reply:
        """Ask once; see Provider."""
        create = self._client.chat.completions.create
        read = partial(self._reply, request)
        for _ in range(len(_LIMITS) + 2):
            try:
                return sdk.call(self._sdk, create, self._parameters(request), read, self.name, self._timeout)
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
        choice = response.choices[0]
        text = sdk.clean_text(choice.message.content)
        usage = getattr(response, "usage", None)
        input_tokens = sdk.count(getattr(usage, "prompt_tokens", None), most_input_tokens(request))
        output_tokens = sdk.count(getattr(usage, "completion_tokens", None), len(text.encode()))
        refusal = getattr(choice.message, "refusal", None)
        if refusal or choice.finish_reason == "content_filter":
            said = refusal or "its content filter stopped the reply"
            finish, error = REFUSAL, f"{self.name} declined: {sdk.one_line(said)}"
        elif choice.finish_reason == "length":
            finish, error = LENGTH, f"the reply was cut off after {output_tokens} tokens"
        else:
            finish, error = STOP, ""
        return Reply(text, input_tokens, output_tokens, finish=finish, error=error)
