"""What the SDKs of OpenAI and Anthropic share: clients with limits and retries, keys, addresses and exceptions.

The SDKs retry failed requests with growing waits, as long as servers ask for. What they cannot know is told to them in
their own terms: a reply that takes too long, is too large or is not JSON becomes a response with an error status and
the header ``x-should-retry``, which both obey.
"""

import base64
import contextlib
import html
import importlib
import logging
import os
import re
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from envcoder_bench.core.bounded import TooDeepError, parse_json
from envcoder_bench.core.errors import UserError
from envcoder_bench.core.plain_text import one_line
from envcoder_bench.core.words import counted
from envcoder_bench.search.providers.base import REFUSAL, ProviderError, Reply

Hide = Callable[[str], str]
_log = logging.getLogger(__name__)

RETRIES = 6  # the SDK repeats a request after 0.5, 1, 2, 4, 8 and 8 s, or what the server asks for
TIMEOUTS = 3  # tries of a request that times out, which takes minutes and may be billed
MAX_BYTES = 64 << 20  # an unpacked response; models write about a hundredth
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
_LOGIN = re.compile(r"(?<=//)[^/]*@")
_OF_TRANSFER = ("content-encoding", "content-length", "transfer-encoding")
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


def read_base_url(base_url: str | None, variable: str) -> str:
    """Return the URL of ``--base_url``, else of the SDK's environment variable, else an empty string.

    Raises:
        UserError: if it is not a URL.
    """
    url = (base_url or os.environ.get(variable, "")).strip().rstrip("/")
    if url and not url.startswith(("http://", "https://")):
        raise UserError(f"--base_url {without_login(url)}: write an address such as http://localhost:11434/v1")
    return url


def new_transport(http: Any, proxy: str = "") -> Any:
    """Return what sends requests; ``http`` is httpx or its successor, whichever an SDK uses. Tests replace it.

    Raises:
        UserError: if ``proxy`` is not the URL of a proxy that it can use.
    """
    try:
        through = http.Proxy(proxy) if proxy else None
        limits = http.Limits(max_keepalive_connections=0)  # _cut_at sees every connection
        return http.HTTPTransport(limits=limits, proxy=through)
    except (ImportError, ValueError) as error:
        raise UserError(
            f"the proxy {without_login(proxy)} (HTTPS_PROXY, HTTP_PROXY) cannot be used: {error}"
        ) from error


def proxy_of(scheme: str, host: str) -> str:
    """Return the URL of the environment's proxy for a host (HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, but for NO_PROXY).

    Empty without one, and for servers on this machine.
    """
    if host == "localhost" or host.startswith("127.") or host == "::1" or urllib.request.proxy_bypass(host):
        return ""
    proxies = urllib.request.getproxies()
    proxy = proxies.get(scheme) or proxies.get("all") or ""
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy


def http_client(sdk: Any, who: str, timeout: float, notify: Callable[[str], None], hide: Hide) -> Any:
    """Return an SDK's HTTP client that reads replies within limits, and reports failures that are sent again.

    A try with its redirects takes ``timeout`` at most, and all tries of a request with the waits between them three
    times as long, whatever a server does; the waits that a server asks for add up to ``timeout``.

    Args:
        who: model and URL, for messages.
        timeout: time limit of the whole reply, s.
        notify: called with a line for each failure, from any thread.
        hide: removes secrets from what the server says.
    """
    http = importlib.import_module(sdk.DefaultHttpxClient.__mro__[1].__module__.split(".")[0])
    reported = set[str]()
    transports: dict[str, Any] = {}  # redirects may lead to a host with another proxy
    call = threading.local()  # the SDK makes all tries of a call in its thread

    class Transport(http.BaseTransport):
        def handle_request(self, request: Any) -> Any:
            tries = 1 + int(request.headers.get("x-stainless-retry-count", 0))
            now = time.monotonic()
            if tries == 1 and "end" not in request.extensions:
                call.end, call.waits, call.failure = now + TIMEOUTS * timeout, 0.0, None
            end = request.extensions.setdefault("end", min(now + timeout, call.end))  # redirects have a copy
            late = self._failure(504, f"no reply within {timeout:g} s (--reply_timeout)", tries < TIMEOUTS)
            if now > end:  # the waits between the tries took the rest of the time
                status, message = call.failure or (0, "")
                return self._failure(status, message, False) if status else late
            try:
                with _cut_at(end, request):
                    response = self._whole_reply(request, end)
            except http.TransportError as error:
                if isinstance(error, http.TimeoutException) or time.monotonic() >= end:
                    response = late
                else:
                    proxy = without_login(proxy_of(request.url.scheme, request.url.host))
                    through = f" through the proxy {proxy}" if proxy else ""
                    text = f"no connection to {who}{through}: {hide(str(error))}{_remedy(error)}"
                    call.failure = 503, f"no connection: {hide(str(error))}{_remedy(error)}"
                    if text not in reported:  # requests of a round fail together, and each is sent again
                        reported.add(text)
                        notify(text)
                    raise
            call.waits += _asked_wait(response)
            if call.waits > timeout:
                response.headers["x-should-retry"] = "false"
            if response.status_code in (408, 409, 429) or response.status_code >= 500:
                message = _reason(response.text, hide)
                call.failure = response.status_code, message
                notify(f"{who}: {response.status_code}: {message}")
            return response

        def _whole_reply(self, request: Any, end: float) -> Any:
            """Return the response with its content, or a failure in its place."""
            proxy = proxy_of(request.url.scheme, request.url.host)
            if proxy not in transports:
                transports[proxy] = new_transport(http, proxy)
            response, content = transports[proxy].handle_request(request), bytearray()
            try:
                for chunk in response.iter_bytes():
                    content += chunk
                    if len(content) > MAX_BYTES:
                        return self._failure(502, f"the reply is too large: more than {MAX_BYTES >> 20} MiB", False)
                    if time.monotonic() > end:
                        raise http.ReadTimeout("the reply took too long")
            except http.DecodingError as error:
                return self._failure(502, f"the reply cannot be read: {error}", True)
            finally:
                response.close()
            # the content is complete, and decoded
            headers = [pair for pair in response.headers.multi_items() if pair[0].lower() not in _OF_TRANSFER]
            kept = b"" if response.is_redirect else bytes(content)
            whole = http.Response(response.status_code, headers=headers, content=kept)
            text = kept.decode("utf-8", "replace")
            try:
                parse_json(text)
            except TooDeepError as error:
                return self._failure(502, f"the reply cannot be read: {error}", True)
            except ValueError:
                if whole.status_code == 200 and not _is_page(whole, text):
                    return self._failure(502, f"the reply cannot be read: {_excerpt(hide(text))}", True)
            return whole

        def _failure(self, status: int, message: str, again: bool) -> Any:
            headers = {"x-should-retry": str(again).lower()}
            return http.Response(status, headers=headers, json={"error": {"message": message}})

    return sdk.DefaultHttpxClient(timeout=http.Timeout(timeout, connect=10.0), transport=Transport())


@contextlib.contextmanager
def _cut_at(end: float, request: Any) -> Iterator[None]:
    """Break a request's connection at a time of the monotonic clock: single reads have no limit in common."""
    sockets: list[socket.socket] = []

    def connected(event: str, info: Mapping[str, Any]) -> None:
        if event.endswith("connect_tcp.complete"):
            # a duplicate, which stays that of the connection when TLS takes it over
            sockets.append(info["return_value"].get_extra_info("socket").dup())
            if time.monotonic() >= end:
                cut()

    def cut() -> None:
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    request.extensions["trace"] = connected
    timer = threading.Timer(end - time.monotonic(), cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # it does not shut down a descriptor that is used again
        for each in sockets:
            each.close()


def _asked_wait(response: Any) -> float:
    """Return the seconds that a response asks to wait; 0 if it does not, or gives a date."""
    headers = response.headers
    with contextlib.suppress(ValueError):
        return max(0.0, float(headers.get("retry-after") or float(headers.get("retry-after-ms") or 0) / 1000))
    return 0.0


def _excerpt(text: str) -> str:
    """Describe a reply that is not JSON by its beginning."""
    return f"it is not JSON, and begins: {one_line(text, EXCERPT)}" if text.strip() else "it is empty"


def _remedy(error: BaseException) -> str:
    return "; is the server running?" if "refused" in str(error) else ""


def _is_page(response: Any, text: str) -> bool:
    html_type = response.headers.get("content-type", "").startswith("text/html")
    return (html_type and bool(_web_page(text))) or text.lstrip()[:20].lower().startswith("<!doctype html")


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
        self.model, self.url = model, read_base_url(base_url, f"{kind.upper()}_BASE_URL")
        key = read_key(f"{kind.upper()}_API_KEY", self.url)
        self.sdk = import_sdk(kind)
        self.name = f"{kind}:{model}" + ("@" + without_login(self.url) if self.url else "")  # not the password
        self.hide = hiding(key, self.url)
        http = http_client(self.sdk, self.name, timeout, notify, self.hide)
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
        self, create: Callable[..., Any], parameters: Callable[[], dict[str, Any]], read: Callable[[Any], list[Reply]]
    ) -> list[Reply]:
        """Call a method of the SDK until it takes the parameters, read its response, and translate exceptions.

        Args:
            create: the method.
            parameters: returns its arguments, without those that are known to be unsupported.
            read: converts a response, which may be incomplete, to replies.

        Raises:
            ProviderError: if no reply came, also after the SDK's retries.
            UserError: for a wrong key, an unknown model, an invalid request, or a web page instead of a reply.
        """
        for _ in range(len(_OPTIONAL) + 2):
            try:
                return self._call_once(create, parameters(), read)
            except UnsupportedParameter as error:
                self.unsupported.add(str(error))
            except Refused as error:
                return [Reply("", finish=REFUSAL, error=f"{self.name} declined: {error}")]
        raise UserError(f"{self.name} does not take {', '.join(sorted(self.unsupported))}")

    def _call_once(
        self, create: Callable[..., Any], parameters: dict[str, Any], read: Callable[[Any], list[Reply]]
    ) -> list[Reply]:
        sdk, who, hide = self.sdk, self.name, self.hide
        try:
            response = create(**parameters)
        except sdk.APIStatusError as error:
            raise _of_status(error, {**parameters, **parameters.get("extra_body", {})}, who, hide) from error
        except sdk.APIConnectionError as error:
            cause = error.__cause__ or error
            raise ProviderError(f"no connection to {who}: {hide(str(cause))}{_remedy(cause)}") from error
        except (sdk.APIError, ValueError) as error:  # ValueError: not JSON, but a page; others were sent again
            raise _is_a_web_page(who, hide(str(getattr(error, "doc", "") or error))) from error
        if isinstance(response, str) and _web_page(response):  # SDKs return other content types unchanged
            raise _is_a_web_page(who, hide(response))
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
        tries = 1 + int(error.request.headers.get("x-stainless-retry-count", 0))
        return ProviderError(f"{who}: {status}: {message}" + (f" (tried {tries} times)" if tries > 1 else ""))
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


def shares(total: int, count: int) -> list[int]:
    """Divide a number of tokens into ``count`` nearly equal parts."""
    return [total // count + (k < total % count) for k in range(count)]


def clean_text(text: str | None) -> str:
    """Replace lone surrogates, which cannot be encoded, by question marks."""
    return (text or "").encode("utf-8", "replace").decode("utf-8")


def hiding(key: str, url: str = "") -> Hide:
    """Return a function that replaces a key, and the user name and password of a URL, in a text by HIDDEN."""
    login = login_of(url)
    secrets = {key, login, login.partition(":")[2]}
    secrets |= {unquote(secret) for secret in secrets}
    secrets.add(base64.b64encode(unquote(login).encode()).decode())  # the header that a server may echo
    longest_first = sorted((secret for secret in secrets if len(secret) >= MIN_SECRET), key=len, reverse=True)
    # servers repeat them in capital letters, or encoded for a URL, in whole or in part
    pattern = re.compile("|".join(map(_spellings, longest_first)) or "(?!)", re.IGNORECASE)
    return lambda text: pattern.sub(HIDDEN, text)


def _spellings(secret: str) -> str:
    """Return a pattern for a text in which each character may be encoded for a URL."""
    pairs = ((re.escape(c), "".join(f"%{byte:02x}" for byte in c.encode())) for c in secret)
    return "".join(f"(?:{plain}|{encoded})" for plain, encoded in pairs)


def login_of(url: str) -> str:
    """Return ``USER:PASSWORD`` of ``https://USER:PASSWORD@host/v1``; empty without it."""
    login = _LOGIN.search(url)
    return login.group()[:-1] if login else ""


def without_login(url: str) -> str:
    """Return a URL without user name and password."""
    return _LOGIN.sub("", url)
