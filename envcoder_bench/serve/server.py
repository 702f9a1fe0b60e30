"""``envcoder-bench mcp``: the tools over the Model Context Protocol, by stdio or HTTP on the loopback."""

import contextlib
import functools
import logging
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from envcoder_bench import __version__
from envcoder_bench.core.errors import UserError
from envcoder_bench.core.files import locked, write_atomic
from envcoder_bench.serve.campaign import Campaign, State
from envcoder_bench.serve.texts import error_text, short_json
from envcoder_bench.serve.tools import Tools

if TYPE_CHECKING:
    from mcp.server import MCPServer
    from mcp.types import CallToolResult

INSTALL = "pip install 'envcoder-bench[mcp]'"
INSTRUCTIONS = (
    "Find reward shaping that trains better robot policies. describe the task, write candidates, check them, rank them"
    " with 3 seeds, and change only what the verdicts say: a champion changes only with 'better', and 'cannot tell' is"
    " not a gain. final says what the champion is worth on seeds of its own."
)
TOOLS = (
    *("tasks", "describe", "check", "plan", "rank", "status", "result", "explain", "terms", "sweep", "policy", "final"),
)
log = logging.getLogger(__name__)


class Watch(Protocol):
    """Sees every call of a tool."""

    def before(self) -> None:
        """Raise UserError if no further call is allowed."""

    def after(self, tool: str, arguments: Mapping[str, Any], answer: str) -> str:
        """Note a call with its answer, which may be an error; return what the client reads."""
        ...


def make_server(tools: Tools, watch: Watch | None = None, names: Sequence[str] = TOOLS, **options: Any) -> "MCPServer":
    """Return the server of the tools.

    Args:
        names: the tools that it offers.
        options: arguments of MCPServer.

    Raises:
        UserError: without the package ``mcp``.
    """
    try:
        from mcp.server import MCPServer
        from mcp.types import CallToolResult, TextContent
    except ImportError as error:
        raise UserError(f"envcoder-bench mcp needs the package mcp: {INSTALL}") from error

    server = MCPServer("envcoder-bench", instructions=INSTRUCTIONS, version=__version__, log_level="ERROR", **options)

    def answer(call: Callable[[], Mapping[str, Any]]) -> tuple[str, bool]:
        """Return an answer, or an error as data, and whether it is one: an unexpected one is in the log alone."""
        try:
            return short_json(call()), False
        except Exception as error:
            is_expected = isinstance(error, (UserError, ValueError, OSError))
            if not is_expected:
                log.exception("a tool failed")
            data = error_text(error) if is_expected else {"message": "the tool failed; the log of the server says why"}
            return short_json({"error": data}), True

    def tool(name: str, method: Callable[..., Mapping[str, Any]]) -> None:
        def watched(values: Mapping[str, Any]) -> Mapping[str, Any]:
            if watch is not None:
                watch.before()
            return method(**values)

        @functools.wraps(method)  # with its arguments, which the client reads
        def call(**values: Any) -> "CallToolResult":
            text, is_error = answer(lambda: watched(values))
            if watch is not None:
                text = watch.after(name, values, text)
            return CallToolResult(content=[TextContent(type="text", text=text)], is_error=is_error)

        server.add_tool(call, name=name, structured_output=False)

    for name in names:
        tool(name, getattr(tools, name))
    return server


@contextlib.contextmanager
def served(
    tools: Tools, folder: Path, watch: Watch | None = None, names: Sequence[str] = TOOLS
) -> Iterator[tuple[str, str]]:
    """Serve by HTTP on a free port of the loopback, from a thread; yields the address and the token in ``folder``."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        app = make_server(tools, watch, names, **token_options(folder, port)).streamable_http_app(json_response=True)
        import uvicorn  # comes with mcp

        serving = uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1))
        thread = threading.Thread(target=serving.run, args=([listening],), name="mcp server", daemon=True)
        thread.start()
        while not serving.started and thread.is_alive():
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{port}/mcp", token_of(folder)
        finally:
            serving.should_exit = True
            thread.join(20.0)


class _Token:
    """The verifier of the one token of an HTTP server."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def verify_token(self, token: str) -> Any:
        from mcp.server.auth.provider import AccessToken

        if not secrets.compare_digest(token.encode(), self._token.encode()):
            return None
        return AccessToken(token=token, client_id="agent", scopes=[])


def token_of(folder: Path) -> str:
    """Return the token of a campaign's HTTP server, which its folder keeps; only its owner can read the file."""
    file = folder / "token"
    if not file.exists():
        file.touch(mode=0o600)
        file.write_text(secrets.token_urlsafe(32))
    return file.read_text().strip()


def token_options(folder: Path, port: int) -> dict[str, Any]:
    """Return the options of an HTTP server that takes requests with the token of a folder alone."""
    try:
        from mcp.server.auth.settings import AuthSettings
    except ImportError as error:
        raise UserError(f"envcoder-bench mcp needs the package mcp: {INSTALL}") from error

    address: Any = f"http://127.0.0.1:{port}"
    settings = AuthSettings(issuer_url=address, resource_server_url=None)
    return {"token_verifier": _Token(token_of(folder)), "auth": settings}


def serve(folder: Path, root: Path, settings: State, port: int | None = None) -> None:
    """Serve a campaign until the client leaves, or until a signal; by HTTP on ``port`` of the loopback, else by stdio.

    Raises UserError if another server has the folder, its task is another one, or the port is taken.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, "campaign"):
        campaign = Campaign(folder, settings)
        with campaign.change() as state:
            if settings.task and state.task not in ("", settings.task):
                raise UserError(f"{folder} is a campaign of {state.task}", advice="give another folder")
            state.task = settings.task or state.task
            state.budget = max(state.budget, settings.budget)  # more may be granted
        tools = Tools(campaign, root.resolve())
        server = make_server(tools, **({} if port is None else token_options(folder, port)))
        tools.runner.start()
        try:
            if port is None:
                server.run("stdio")
            else:
                _refuse_taken(port)
                print(f"http://127.0.0.1:{port}/mcp, token in {folder / 'token'}", file=sys.stderr, flush=True)
                server.run("streamable-http", host="127.0.0.1", port=port)
        finally:
            tools.runner.stop()


def install_skill(folder: Path) -> Path:
    """Write the page for agents into a folder of skills; return the file."""
    file = folder / "envcoder-bench" / "SKILL.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(file, (Path(__file__).parent / "SKILL.md").read_bytes())
    return file


def _refuse_taken(port: int) -> None:
    with contextlib.closing(socket.socket()) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError as error:
            raise UserError(f"--http {port}: {error.strerror}", advice="give another port") from None
