"""What the SDKs of OpenAI and Anthropic have in common: both come out of one generator, down to their exceptions."""

from __future__ import annotations

import html
import importlib
import math
import os
import re
import time
from email.utils import parsedate_to_datetime
from typing import Any, Callable, Mapping, TypeVar

from envcoder_bench.core.errors import UserError
from envcoder_bench.report.words import counted
from envcoder_bench.search.providers.base import ProviderError
from envcoder_bench.search.providers.transport import TooLarge

Result = TypeVar("Result")

_OPTIONAL = ("temperature", "max_tokens", "max_completion_tokens")  # parameters that some models do not take
_TOO_LONG = ("context_length_exceeded", "prompt is too long", "maximum context length", "context window")
_HTML = re.compile(r"<(!doctype html|html|head|body|title)\b", re.IGNORECASE)
_TITLE = re.compile(r"<title\b[^<>]*>([^<]*)<", re.IGNORECASE)
_DECLINED = ("content_filter", "content_policy_violation", "invalid_prompt")


class Refused(Exception):
    """The provider declined to answer the prompt."""


class NotTaken(Exception):
    """The model does not take a parameter; the message is its name."""


def import_sdk(name: str) -> Any:
    """Import an SDK only now, because it takes a second, and ``--help`` none.

    Raises:
        UserError: it is not installed, or something that it needs is not.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"--llm needs the package {name} ({error}): pip install --upgrade {name}") from error


def read_key(variable: str, base_url: str) -> str:
    """The API key from the environment; any word will do for a server of the user's own that wants none.

    Raises:
        UserError: there is none, or what there is cannot be one.
    """
    key = os.environ.get(variable, "").strip()
    if not key and not base_url:
        raise UserError(f"{variable} is not set: export {variable}=YOUR_KEY (or name your own server with --base_url)")
    if not key.isascii() or any(character.isspace() for character in key):
        raise UserError(f"{variable} holds characters that no key has; copy the key again")
    return key or "none"


def provider_name(kind: str, model: str, base_url: str) -> str:
    """``openai:gpt-4.1`` or ``openai:qwen3@http://localhost:11434/v1``, without a password of the address."""
    return f"{kind}:{model}" + ("@" + re.sub(r"//[^/@]*@", "//", base_url) if base_url else "")


def read_base_url(base_url: str | None, variable: str) -> str:
    """The address of ``--base_url``, else of the SDK's own environment variable, else an empty string.

    Raises:
        UserError: it is no address.
    """
    url = (base_url or os.environ.get(variable, "")).strip().rstrip("/")
    if url and not url.startswith(("http://", "https://")):
        raise UserError(f"--base_url {url}: write an address such as http://localhost:11434/v1")
    return url


def call(
    sdk: Any,
    create: Callable[..., Any],
    parameters: Mapping[str, Any],
    read: Callable[[Any], Result],
    who: str,
    timeout: float,
) -> Result:
    """Call a method of an SDK once, read what came, and sort the exceptions.

    Args:
        read: makes a reply of a response, which may lack anything that it should have.
        who: model and address, for messages.

    Raises:
        ProviderError: no reply this time.
        UserError: wrong key, unknown model, a request that is wrong in itself, an address that shows a web page.
        Refused, NotTaken: see there.
    """
    try:
        response = create(**parameters)
    except sdk.APITimeoutError as error:
        raise ProviderError("timeout", f"no reply from {who} within {timeout:g} s") from error
    except (sdk.APIConnectionError, TooLarge) as error:  # not every SDK makes its own error of it
        cause = error.__cause__ or error
        if isinstance(cause, TooLarge):
            raise ProviderError("malformed", f"the reply of {who} is too large: {cause}", again=False) from error
        raise ProviderError("connection", f"no connection to {who}: {cause}") from error
    except sdk.APIStatusError as error:
        raise _of_status(error, {**parameters, **parameters.get("extra_body", {})}, who) from error
    except (sdk.APIError, ValueError) as error:  # ValueError: what came is not JSON
        text = str(getattr(error, "doc", ""))
        if text.lstrip()[:20].lower().startswith("<!doctype html"):
            raise _is_a_web_page(who, text) from error
        raise ProviderError("malformed", f"the reply of {who} cannot be read: {one_line(error)}") from error
    if isinstance(response, str) and _web_page(response):  # the SDK gives what says that it is no JSON as it is
        raise _is_a_web_page(who, response)
    try:
        return read(response)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        said = one_line(getattr(response, "error", None) or error)
        raise ProviderError("malformed", f"the reply of {who} cannot be read: {said}") from error


def _web_page(text: str) -> str:
    """What a text that begins as a web page is, for messages: ``a web page ("Sign in")``; empty where it is none."""
    start = text[:20_000]
    if not _HTML.search(start[:1000]):
        return ""
    title = _TITLE.search(start)
    named = one_line(html.unescape(title.group(1)), 80) if title else ""
    return f'a web page ("{named}")' if named else "a web page"


def _is_a_web_page(who: str, text: str) -> UserError:
    return UserError(
        f"{who} answers with {_web_page(text)}, and not as a model does: check the address (--base_url; that of an API "
        "mostly ends in /v1), and whether a login or a proxy stands before it (open the address in a browser)"
    )


def _of_status(error: Any, sent: Mapping[str, Any], who: str) -> Exception:
    status: int = error.status_code
    said = _said(error)
    text = f"{getattr(error, 'code', None) or ''} {said}".lower()
    if status in (400, 413, 422):
        if any(word in text for word in _DECLINED):
            return Refused(said)
        if status == 413 or any(word in text for word in _TOO_LONG):
            return ProviderError("request", f"{who}: the prompt is too long: {said}", again=False)
        for name in _OPTIONAL:  # "Unsupported parameter: 'max_tokens' ...", "`temperature` is deprecated ..."
            if name in sent and re.search(rf"['\"`]{name}['\"`]", text):
                return NotTaken(name)
        if "n" in sent and status != 413:  # servers say so in many ways; without it the rest is judged anew
            return NotTaken("n")
    if status == 401:
        return UserError(f"{who}: the key was not accepted ({said})")
    if status == 404:
        return UserError(f"{who}: no such model or address ({said}); the address mostly ends in /v1")
    if status == 429 and "insufficient_quota" in text:
        return UserError(f"{who}: no credit left ({said})")
    if status in (408, 409, 425, 429) or status >= 500:
        again = error.response.headers.get("x-should-retry") != "false"
        kind = "rate_limit" if status == 429 else "server"
        return ProviderError(kind, f"{who}: {status}: {said}", _retry_after(error.response.headers), again)
    return UserError(f"{who} does not accept the request: {status}: {said}")


def _said(error: Any) -> str:
    """The server's own words, in one line."""
    body = error.body
    if isinstance(body, dict):
        inner = body.get("error", body)
        body = inner.get("message") if isinstance(inner, dict) else inner
    said = str(body or error.message)
    return _web_page(said) or one_line(said)


def one_line(text: object, most: int = 300) -> str:
    """A text in one line of limited length, for messages."""
    line = " ".join(str(text).split())
    return line if len(line) <= most else line[: most - 3] + "..."


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a reply's headers ask to wait (numbers, or RFC 9110's date); None where they do not."""
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


def count(tokens: object, most: int) -> int:
    """A provider's count of tokens; the most that it can be where a server does not count, so that budgets hold."""
    return tokens if isinstance(tokens, int) and tokens >= 0 else most


def cut_off(tokens: int) -> str:
    """Why a reply has no end, and what to do."""
    return (
        f"the reply was cut off after {counted(tokens, 'token')}: raise --max_output_tokens, or lower prompt.max_chars"
        " where prompt and reply fill the model's context"
    )


def shares(total: int, count: int) -> list[int]:
    """A number of tokens in so many parts, as equal as can be."""
    return [total // count + (k < total % count) for k in range(count)]


def clean_text(text: str | None) -> str:
    """A reply's text with question marks for halves of surrogate pairs, which no file and no request can hold."""
    return (text or "").encode("utf-8", "replace").decode("utf-8")
