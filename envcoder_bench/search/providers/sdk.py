"""Common code for the SDKs of OpenAI and Anthropic, which have the same structure and exceptions."""

import html
import importlib
import logging
import math
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from envcoder_bench.core.errors import UserError
from envcoder_bench.report.words import counted
from envcoder_bench.search.providers.base import ProviderError
from envcoder_bench.search.providers.secrets import Hide, without_login
from envcoder_bench.search.providers.transport import TooLarge

Result = TypeVar("Result")
_log = logging.getLogger(__name__)

_OPTIONAL = ("temperature", "max_tokens", "max_completion_tokens")  # parameters that some models do not support
_TOO_LONG = ("context_length_exceeded", "prompt is too long", "maximum context length", "context window")
_RANGE = re.compile(
    r"\b(above|below|between|range|at most|at least|less than|greater than|too (large|high|low)|exceeds?)\b|[<>]=?"
)
_UNSUPPORTED = re.compile(r"unsupported|not support|deprecated|unknown|unrecognized")
_FLAGS = {  # that set what a server refuses, and words of its message
    "--temperature": ("temperature",),
    "--max_output_tokens": ("max_tokens", "max_completion_tokens", "output tokens", "completion tokens"),
    "--llm": ("model",),
}
_HTML = re.compile(r"<(!doctype html|html|head|body|title)\b", re.IGNORECASE)
_TITLE = re.compile(r"<title\b[^<>]*>([^<]*)<", re.IGNORECASE)
_DECLINED = ("content_filter", "content_policy_violation", "invalid_prompt")


class Refused(Exception):
    """The provider declined to answer the prompt."""


class UnsupportedParameter(Exception):
    """The model does not support a parameter; the message is its name."""


class Ignored:
    """Warns once that a model does not support ``--temperature``; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._warned = False

    def warn(self, who: str, temperature: float | None) -> None:
        """Log the warning, unless no temperature was set or this is not the first call."""
        with self._lock:
            if temperature is not None and not self._warned:
                self._warned = True
                _log.warning("%s does not support --temperature: %g has no effect", who, temperature)


def import_sdk(name: str) -> Any:
    """Import an SDK late, because it takes a second.

    Raises:
        UserError: if it or one of its dependencies is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"--llm needs the package {name} ({error}): pip install --upgrade {name}") from error


def read_key(variable: str, base_url: str) -> str:
    """Return the API key from the environment; a placeholder for other servers, which may need none.

    Raises:
        UserError: if it is missing or has invalid characters.
    """
    key = os.environ.get(variable, "").strip()
    if not key and not base_url:
        raise UserError(f"{variable} is not set: export {variable}=YOUR_KEY (or name your own server with --base_url)")
    if not key.isascii() or any(character.isspace() for character in key):
        raise UserError(f"{variable} holds characters that no key has; copy the key again")
    return key or "none"


def provider_name(kind: str, model: str, base_url: str) -> str:
    """Return ``openai:gpt-4.1`` or ``openai:qwen3@http://localhost:11434/v1``, without a password in the URL."""
    return f"{kind}:{model}" + ("@" + without_login(base_url) if base_url else "")


def read_base_url(base_url: str | None, variable: str) -> str:
    """Return the URL of ``--base_url``, else of the SDK's environment variable, else an empty string.

    Raises:
        UserError: if it is not a URL.
    """
    url = (base_url or os.environ.get(variable, "")).strip().rstrip("/")
    if url and not url.startswith(("http://", "https://")):
        raise UserError(f"--base_url {without_login(url)}: write an address such as http://localhost:11434/v1")
    return url


def call(
    sdk: Any,
    create: Callable[..., Any],
    parameters: Mapping[str, Any],
    read: Callable[[Any], Result],
    who: str,
    timeout: float,
    hide: Hide,
) -> Result:
    """Call a method of an SDK once, read its response, and translate exceptions.

    Args:
        sdk: the SDK's module.
        create: the method.
        parameters: its arguments.
        read: converts a response, which may be incomplete, to replies.
        who: model and URL, for messages.
        timeout: time limit, s, for messages.
        hide: removes secrets from what the server says.

    Raises:
        ProviderError: if there is no reply; a retry may succeed.
        UserError: for a wrong key, an unknown model, an invalid request, or a web page instead of a reply.
        Refused: if the provider declined to answer.
        UnsupportedParameter: if the model does not support a parameter.
    """
    try:
        response = create(**parameters)
    except sdk.APITimeoutError as error:
        raise ProviderError("timeout", f"no reply from {who} within {timeout:g} s (--reply_timeout)") from error
    except (sdk.APIConnectionError, TooLarge) as error:  # not every SDK wraps TooLarge
        cause = error.__cause__ or error
        if isinstance(cause, TooLarge):
            raise ProviderError("malformed", f"the reply of {who} is too large: {cause}", again=False) from error
        raise ProviderError("connection", f"no connection to {who}: {hide(str(cause))}") from error
    except sdk.APIStatusError as error:
        raise _of_status(error, {**parameters, **parameters.get("extra_body", {})}, who, hide) from error
    except (sdk.APIError, ValueError) as error:  # ValueError: the response is not JSON
        text = str(getattr(error, "doc", ""))
        if text.lstrip()[:20].lower().startswith("<!doctype html"):
            raise _is_a_web_page(who, hide(text)) from error
        raise ProviderError("malformed", f"the reply of {who} cannot be read: {one_line(hide(str(error)))}") from error
    if isinstance(response, str) and _web_page(response):  # the SDK returns responses of other content types unchanged
        raise _is_a_web_page(who, hide(response))
    try:
        return read(response)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        message = one_line(hide(str(getattr(response, "error", None) or error)))
        raise ProviderError("malformed", f"the reply of {who} cannot be read: {message}") from error


def _web_page(text: str) -> str:
    """Return ``a web page ("Sign in")`` for a text that is a web page; otherwise an empty string."""
    start = text[:20_000]
    if not _HTML.search(start[:1000]):
        return ""
    title = _TITLE.search(start)
    named = one_line(html.unescape(title.group(1)), 80) if title else ""
    return f'a web page ("{named}")' if named else "a web page"


def _is_a_web_page(who: str, text: str) -> UserError:
    return UserError(
        f"{who} answers with {_web_page(text)} instead of a model's reply: check the address (--base_url; that of an "
        "API mostly ends in /v1), and whether it requires a login or a proxy (open the address in a browser)"
    )


def _of_status(error: Any, sent: Mapping[str, Any], who: str, hide: Hide) -> Exception:
    status: int = error.status_code
    message = _message(error, hide)
    text = f"{getattr(error, 'code', None) or ''} {message}".lower()
    if status in (400, 413, 422):
        if any(word in text for word in _DECLINED):
            return Refused(message)
        if status == 413 or any(word in text for word in _TOO_LONG):
            return ProviderError("request", f"{who}: the prompt is too long: {message}", again=False)
        limited = _RANGE.search(text) and not _UNSUPPORTED.search(text)
        for name in _OPTIONAL:  # "Unsupported parameter: 'max_tokens' ...", "`temperature` is deprecated ..."
            if name in sent and not limited and re.search(rf"['\"`]{name}['\"`]", text):
                return UnsupportedParameter(name)
        if "n" in sent and status != 413:  # messages differ; without n, other errors show next
            return UnsupportedParameter("n")
    if status == 401:
        return UserError(f"{who}: the key was not accepted ({message})")
    if status == 404:
        address = "check --llm and --base_url, whose address mostly ends in /v1"
        return UserError(f"{who}: no such model or address ({message}); {address}")
    if status == 429 and "insufficient_quota" in text:
        return UserError(f"{who}: no credit left ({message})")
    if status in (408, 409, 425, 429) or status >= 500:
        again = error.response.headers.get("x-should-retry") != "false"
        kind = "rate_limit" if status == 429 else "server"
        return ProviderError(kind, f"{who}: {status}: {message}", _retry_after(error.response.headers), again)
    flag = next((flag for flag, words in _FLAGS.items() if any(word in text for word in words)), "")
    return UserError(f"{who} does not accept the request: {status}: {message}{f' (see {flag})' if flag else ''}")


def _message(error: Any, hide: Hide) -> str:
    """Return the server's message in one line, without secrets."""
    body = error.body
    if isinstance(body, dict):
        inner = body.get("error", body)
        body = inner.get("message") if isinstance(inner, dict) else inner
    message = hide(str(body or error.message))  # before it is shortened
    return _web_page(message) or one_line(message)


def one_line(text: object, limit: int = 300) -> str:
    """Return a text in one line of limited length, for messages."""
    line = " ".join(str(text).split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the wait in seconds that headers ask for, as a number or a date (RFC 9110); None if they do not."""
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) * unit
        except ValueError:
            try:
                seconds = parsedate_to_datetime(value).timestamp() - time.time()
            except (TypeError, ValueError, OverflowError):
                continue
        if math.isfinite(seconds):
            return max(seconds, 0.0)
    return None


def count(tokens: object, upper_bound: int) -> int:
    """Return the provider's count of tokens; the upper bound if there is none, so that budgets hold."""
    return tokens if isinstance(tokens, int) and tokens >= 0 else upper_bound


def joined_text(content: Any) -> str:
    """Return the text of a message's content: a text, nothing, or a list of parts, of which those with text count.

    Raises:
        TypeError: if it is something else.
    """
    if content is None or isinstance(content, str):
        return clean_text(content)
    if not isinstance(content, list) or not all(isinstance(part, (str, dict)) for part in content):
        raise TypeError("its content is neither a text nor a list of parts")
    texts = [part if isinstance(part, str) else part.get("text") for part in content]
    return clean_text("".join(text for text in texts if isinstance(text, str)))


def cut_off(tokens: int) -> str:
    """Return the error of a reply that was cut off."""
    return (
        f"the reply was cut off after {counted(tokens, 'token')}: raise --max_output_tokens, or lower prompt.max_chars"
        " if prompt and reply fill the model's context"
    )


def shares(total: int, count: int) -> list[int]:
    """Divide a number of tokens into ``count`` nearly equal parts."""
    return [total // count + (k < total % count) for k in range(count)]


def clean_text(text: str | None) -> str:
    """Replace lone surrogates, which cannot be encoded, by question marks."""
    return (text or "").encode("utf-8", "replace").decode("utf-8")
