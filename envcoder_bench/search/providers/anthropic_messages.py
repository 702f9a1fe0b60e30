"""Anthropic's models, and other servers with its messages protocol."""

import re
from functools import partial
from typing import Any

from envcoder_bench.core.errors import UserError
from envcoder_bench.search.providers import sdk, transport
from envcoder_bench.search.providers.base import LENGTH, REFUSAL, STOP, Reply, Request, max_input_tokens
from envcoder_bench.search.providers.secrets import hiding

_FIRST_GENERATIONS = re.compile(r"claude-([123](\D|$)|instant)")  # limited to 4,096 output tokens
_CUT_OFF = ("max_tokens", "model_context_window_exceeded")


class AnthropicMessages:
    """A model behind ``POST /v1/messages``."""

    recorded = False

    def __init__(self, model: str, base_url: str | None, timeout: float) -> None:
        """Create the client. Raises UserError if the key or the SDK is missing or the URL is invalid."""
        url = sdk.read_base_url(base_url, "ANTHROPIC_BASE_URL")
        key = sdk.read_key("ANTHROPIC_API_KEY", url)
        self._sdk = sdk.import_sdk("anthropic")
        self._client = self._sdk.Anthropic(
            api_key=key,
            base_url=re.sub(r"/v1$", "", url) or "https://api.anthropic.com",  # the SDK adds /v1
            max_retries=0,  # complete_all retries, and records it
            http_client=transport.http_client(self._sdk, timeout),
        )
        self._timeout, self._hide = timeout, hiding(key, url)
        self._unsupported: set[str] = set()
        self._ignored = sdk.Ignored()
        self.model = model
        self.name = sdk.provider_name("anthropic", model, url)
        self.default_output_tokens = 4096 if _FIRST_GENERATIONS.match(model) else 32000

    def complete(self, request: Request) -> Reply:
        """Send one request; see Provider."""
        create = self._client.messages.create
        read = partial(self._reply, request)
        for _ in range(2):
            try:
                return sdk.call(
                    self._sdk, create, self._parameters(request), read, self.name, self._timeout, self._hide
                )
            except sdk.UnsupportedParameter as error:
                self._unsupported.add(str(error))
            except sdk.Refused as error:
                return Reply("", finish=REFUSAL, error=f"{self.name} declined: {error}")
        raise UserError(f"{self.name} does not take {', '.join(sorted(self._unsupported))}")

    def _parameters(self, request: Request) -> dict[str, Any]:
        parameters: dict[str, Any] = {
            "model": self.model,
            "max_tokens": request.max_output_tokens or self.default_output_tokens,
            "messages": [{"role": m.role, "content": m.text} for m in request.messages],
        }
        if request.system:
            parameters["system"] = request.system
        if "temperature" in self._unsupported:
            self._ignored.warn(self.name, request.temperature)
        elif request.temperature is not None:
            parameters["extra_body"] = {"temperature": request.temperature}  # newer SDKs have no argument for it
        return parameters

    def _reply(self, request: Request, response: Any) -> Reply:
        text = "".join(block.text for block in response.content if block.type == "text")
        text = self._hide(sdk.clean_text(text))
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
        return Reply(text, input_tokens, output_tokens, finish=finish, error=error)
