"""What the SDKs of OpenAI and Anthropic share: clients with limits and retries, keys, addresses and exceptions.

The SDKs retry failed requests with growing waits, or as long as servers ask for.
"""

import contextlib
import html
import importlib
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from envcoder_bench.core.bounded import parse_json
from envcoder_bench.core.errors import UserError
from envcoder_bench.core.plain_text import one_line
from envcoder_bench.core.words import counted
from envcoder_bench.search.providers.base import REFUSAL, ProviderError, Reply

Hide = Callable[[str], str]
_log = logging.getLogger(__name__)

RETRIES = 6  # the SDK repeats a request after 0.5, 1, 2, 4, 8 and 8 s, or what the server asks for
CONNECT = 10.0  # longest time for a connection, s
SILENCE = 3  # time limits without any response after which a request is not sent again
SHORTEST = 120.0  # the same for short time limits, s: all retries without a connection fit in
_TRIES = "x-stainless-retry-count"  # a header of both SDKs
EXCERPT = 100  # characters of a reply that cannot be read
WIDEST = 300  # characters of a server's message
HIDDEN = "[hidden]"
MIN_SECRET = 8  # shorter ones are mostly placeholders, and may be words of a model's code, such as "pass"

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


def check_base_url(url: str, source: str = "--base_url") -> str:
    """Return the address of a server, or an empty text for the provider's own.

    Args:
        source: what it was read from, for messages.

    Raises:
        UserError: if it is not one, or has a password, which messages and files would repeat.
    """
    url = url.strip()
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna")  # raises for names that cannot be looked up
        valid = parts.scheme in ("http", "https") and bool(host) and parts.port != 0 and not re.search(r"\s", url)
    except ValueError:
        valid = False
    hidden = re.sub(r"(?s)^(\w+://)?.*@", r"\1...@", url)
    if "@" in (parts.netloc if valid else url.partition("?")[0]):
        raise UserError(f"{source} {hidden}: leave out user name and password, and give a key")
    if url and not (valid and url.isprintable()):
        raise UserError(f"{source} {one_line(hidden, WIDEST)}: write an address such as http://localhost:11434/v1")
    return url


def _http_library(sdk: Any) -> Any:
    """Return the HTTP library of an SDK, httpx or its successor, whose exceptions differ by version."""
    return importlib.import_module(sdk.DefaultHttpxClient.__mro__[1].__module__.split(".")[0])


def http_client(sdk: Any, url: str, timeout: float, tell: Callable[[str], None], hide: Hide) -> Any:
    """Return an SDK's HTTP client, which goes through the environment's proxy, except to this machine.

    Args:
        timeout: longest time without a byte of the reply, s.
        tell: called for each failure with a status, also that of the last try, and each retry, from any thread.
        hide: removes secrets from a server's message.

    Raises:
        UserError: if the proxy cannot be used.
    """
    http = _http_library(sdk)
    call = threading.local()  # the SDK makes all tries of a call in its thread

    def sent(request: Any) -> None:
        tries, now = int(request.headers.get(_TRIES, 0)), time.monotonic()
        if not tries or call.silent_since is None:
            call.silent_since = now
        if now - call.silent_since > max(SILENCE * timeout, SHORTEST):
            raise sdk.APIError("", request, body=None)  # the SDKs do not retry after their own exceptions
        if tries:
            tell(f"sent again, {tries} of {RETRIES}")

    def received(response: Any) -> None:
        call.silent_since = None
        if response.status_code in (408, 409, 429) or response.status_code >= 500:
            response.read()
            tell(f"{response.status_code}: {_reason(response.text, hide)}{_asked_wait(response)}")

    parts, proxies = urlsplit(url), getproxies()
    is_local = parts.hostname in ("localhost", "127.0.0.1", "::1")
    hooks = {"request": [sent], "response": [received]}
    options = {"timeout": http.Timeout(timeout, connect=CONNECT), "event_hooks": hooks}
    used = next((name for name in (parts.scheme, "all") if proxies.get(name)), "")
    remedy = "cannot be used: write an address such as http://proxy.example:3128"
    if not (is_local or proxy_bypass(parts.hostname or "") or _is_port(proxies.get(used))):
        raise UserError(f"the proxy of {used.upper()}_PROXY {remedy}")
    # the library reads all of them
    there = " or ".join(f"{name.upper()}_PROXY" for name in ("https", "http", "all") if proxies.get(name))
    try:
        return sdk.DefaultHttpxClient(**options, trust_env=not is_local)
    except (ImportError, ValueError) as error:  # httpx hides a proxy's password
        raise UserError(f"the proxy of {there} cannot be used: {error}") from error
    except http.InvalidURL as error:  # it may repeat a part of the password
        raise UserError(f"the proxy of {there} {remedy}") from error


def _is_port(proxy: str | None) -> bool:
    """Return whether the address of a proxy has a port from 1 to 65535, or none; httpx takes any number."""
    try:
        return urlsplit(f"//{(proxy or '').split('://')[-1]}").port != 0
    except ValueError:
        return False


def _asked_wait(response: Any) -> str:
    """Return how long a server asks to wait, as it says it."""
    milliseconds, wait = (response.headers.get(name, "") for name in ("retry-after-ms", "retry-after"))
    text = f"{milliseconds} ms" if milliseconds else f"{wait} s" if wait.isdigit() else wait
    return f" (retry after {one_line(text, 40)})" if text else ""


def _tried(error: Any, unsent: int = 0) -> str:
    tries = 1 + int(error.request.headers.get(_TRIES, 0)) - unsent
    return f" (tried {tries} times)" if tries > 1 else ""


def _excerpt(text: str) -> str:
    """Describe a reply that is not JSON by its beginning."""
    return f"it is not JSON, and begins: {one_line(text, EXCERPT)}" if text.strip() else "it is empty"


def _remedy(error: BaseException) -> str:
    return "; is the server running?" if "refused" in str(error) else ""


class Model:
    """A model behind an SDK; providers derive from it.

    Attributes:
        name, model: see Provider.
        url: URL of another server with the protocol; empty for the provider itself.
        client: the arguments of the SDK's client that both have.
    """

    def __init__(
        self, kind: str, model: str, base_url: str | None, timeout: float, notify: Callable[[str], None]
    ) -> None:
        """Prepare the client. Raises UserError if the key or the SDK is missing or the URL is invalid."""
        variable = f"{kind.upper()}_BASE_URL"
        url = (base_url or os.environ.get(variable, "")).strip().rstrip("/")
        source = "--base_url" if base_url else f"{variable} (read because --base_url is not given)"
        self.model, self.url = model, check_base_url(url, source)
        key = read_key(f"{kind.upper()}_API_KEY", self.url)
        self.sdk = import_sdk(kind)
        self.name = f"{kind}:{model}" + (f"@{self.url}" if self.url else "")
        self.hide, self._notify = hiding(key), notify
        self._silence = f"no reply within {timeout:g} s (--reply_timeout)"
        http = http_client(self.sdk, self.url, timeout, lambda text: notify(f"{self.name}: {text}"), self.hide)
        self.client: dict[str, Any] = {"api_key": key, "max_retries": RETRIES, "http_client": http}
        self.unsupported: set[str] = set()  # parameters that the model refused
        self._warning = threading.Lock()
        self._warned = False

    def temperature(self, value: float | None) -> dict[str, float]:
        """Return the parameter; warn once if the model does not support it."""
        if value is None or "temperature" not in self.unsupported:
            return {} if value is None else {"temperature": value}
        with self._warning:
            if not self._warned:
                self._warned = True
                _log.warning("%s does not support --temperature: %g has no effect", self.name, value)
        return {}

    def call(
        self, create: Callable[..., Any], parameters: Callable[[], dict[str, Any]], read: Callable[[Any], Reply]
    ) -> Reply:
        """Call a method of the SDK until it takes the parameters, read its response, and translate exceptions.

        Args:
            create: the method.
            parameters: returns its arguments, without those that are known to be unsupported.
            read: converts a response, which may be incomplete, to a reply.

        Raises:
            ProviderError: if no reply came, also after the SDK's retries.
            UserError: for a wrong key, an unknown model, an invalid request, or a web page instead of a reply.
        """
        for _ in range(len(_OPTIONAL) + 1):
            try:
                return self._call_once(create, parameters(), read)
            except UnsupportedParameter as error:
                self.unsupported.add(str(error))
            except Refused as error:
                return Reply("", finish=REFUSAL, error=f"{self.name} declined: {error}")
            except ProviderError as error:
                if error.malformed:
                    self._notify(f"{error} (its tokens are not counted)")
                raise
        raise UserError(f"{self.name} does not take {', '.join(sorted(self.unsupported))}")

    def _call_once(self, create: Callable[..., Any], parameters: dict[str, Any], read: Callable[[Any], Reply]) -> Reply:
        sdk, who, hide = self.sdk, self.name, self.hide
        try:
            response = create(**parameters)
            if isinstance(response, str):  # SDKs return other content types unchanged
                raise ValueError(response)
        except sdk.APIStatusError as error:
            raise _of_status(error, {**parameters, **parameters.get("extra_body", {})}, who, hide) from error
        except sdk.APITimeoutError as error:
            if isinstance(error.__cause__, _http_library(sdk).ConnectTimeout):
                remedy = f"within {CONNECT:g} s: check --base_url, the network and the proxy"
                raise ProviderError(f"no connection to {who} {remedy}{_tried(error)}") from error
            raise ProviderError(f"{who}: {self._silence}{_tried(error)}") from error
        except sdk.APIConnectionError as error:
            cause = error.__cause__ or error
            raise ProviderError(f"no connection to {who}: {hide(str(cause))}{_remedy(cause)}{_tried(error)}") from error
        except (sdk.APIError, ValueError) as error:  # it is not JSON
            if type(error) is sdk.APIError:  # http_client refused the reply
                raise ProviderError(f"{who}: {self._silence}{_tried(error, unsent=1)}") from error
            text = hide(str(getattr(error, "doc", error)))
            if _web_page(text):
                raise _is_a_web_page(who, text) from error
            raise ProviderError(f"the reply of {who} cannot be read: {_excerpt(text)}", malformed=True) from error
        except RecursionError as error:
            raise ProviderError(f"the reply of {who} cannot be read: its JSON is too deep", malformed=True) from error
        try:
            return read(response)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            message = one_line(hide(str(getattr(response, "error", None) or error)), WIDEST)
            raise ProviderError(f"the reply of {who} cannot be read: {message}", malformed=True) from error


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
    message = _reason(error.body, hide) or _reason(error.message, hide)
    text = f"{getattr(error, 'code', None) or ''} {message}".lower()
    if status in (400, 413, 422):
        if any(word in text for word in _DECLINED):
            return Refused(message)
        if status == 413 or any(word in text for word in _TOO_LONG):
            return ProviderError(f"{who}: the prompt is too long: {message}")
        limited = _RANGE.search(text) and not _UNSUPPORTED.search(text)
        for name in _OPTIONAL:  # "Unsupported parameter: 'max_tokens' ...", "`temperature` is deprecated ..."
            if name in sent and not limited and re.search(rf"['\"`]{name}['\"`]", text):
                return UnsupportedParameter(name)
    if status == 401:
        return UserError(f"{who}: the key was not accepted ({message})")
    if status == 404:
        address = "check --llm and --base_url, whose address mostly ends in /v1"
        return UserError(f"{who}: no such model or address ({message}); {address}")
    if status == 429 and "insufficient_quota" in text:
        return UserError(f"{who}: no credit left ({message})")
    if status in (408, 409, 425, 429) or status >= 500:
        return ProviderError(f"{who}: {status}: {message}{_asked_wait(error.response)}{_tried(error)}")
    flag = next((flag for flag, words in _FLAGS.items() if any(word in text for word in words)), "")
    return UserError(f"{who} does not accept the request: {status}: {message}{f' (see {flag})' if flag else ''}")


def _reason(body: Any, hide: Hide) -> str:
    """Return the message of a response in one line, without secrets; ``body`` is JSON, as text or read."""
    if isinstance(body, str):
        with contextlib.suppress(ValueError):
            body = parse_json(body)
    if isinstance(body, dict):
        inner = body.get("error", body)
        body = inner.get("message") if isinstance(inner, dict) else inner
    message = hide(str(body or ""))  # before it is shortened
    return _web_page(message) or one_line(message, WIDEST)


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


def clean_text(text: str | None) -> str:
    """Replace lone surrogates, which cannot be encoded, by question marks."""
    return (text or "").encode("utf-8", "replace").decode("utf-8")


def hiding(key: str) -> Hide:
    """Return a function that replaces a key in a text, in capital letters or not, by HIDDEN."""
    pattern = re.compile(re.escape(key) if len(key) >= MIN_SECRET else "(?!)", re.IGNORECASE)
    return lambda text: pattern.sub(HIDDEN, text)
