"""``envcoder-bench mcp``: the tools over the Model Context Protocol, by stdio or HTTP on the loopback."""

import contextlib
import logging
import secrets
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

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
log = logging.getLogger(__name__)

Files = Annotated[list[str], Field(description="paths of .py files below the folder of the server")]
Sources = Annotated[dict[str, str], Field(description="or texts of candidates by name")]


def make_server(tools: Tools, **options: Any) -> "MCPServer":
    """Return the server of the tools; ``options`` are arguments of MCPServer. Raises UserError without ``mcp``."""
    try:
        from mcp.server import MCPServer
        from mcp.types import CallToolResult, TextContent
    except ImportError as error:
        raise UserError(f"envcoder-bench mcp needs the package mcp: {INSTALL}") from error

    server = MCPServer("envcoder-bench", instructions=INSTRUCTIONS, version=__version__, log_level="ERROR", **options)

    def answer(call: Callable[[], Mapping[str, Any]]) -> "CallToolResult":
        """Return an answer, or an error as data: an unexpected one is in the log alone."""
        try:
            return CallToolResult(content=[TextContent(type="text", text=short_json(call()))])
        except Exception as error:
            is_expected = isinstance(error, (UserError, ValueError, OSError))
            if not is_expected:
                log.exception("a tool failed")
            data = error_text(error) if is_expected else {"message": "the tool failed; the log of the server says why"}
            text = short_json({"error": data})
            return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)

    def tool(function: Callable[..., Any]) -> None:
        server.add_tool(function, structured_output=False)

    def tasks() -> CallToolResult:
        """List the tasks, and the one of this campaign."""
        return answer(tools.tasks)

    def describe(task: str = "") -> CallToolResult:
        """Describe a task: fitness, functions to write, keys of the state; `more` is a file with all of it."""
        return answer(lambda: tools.describe(task))

    def check(files: Files = [], sources: Sources = {}, task: str = "") -> CallToolResult:  # noqa: B006
        """Check candidates without training, in seconds: errors with line and advice, widths, notes."""
        return answer(lambda: tools.check(files, sources, task))

    def plan(
        candidates: int = 1, seeds: int = 3, iterations: int = 0, minutes: float = 0, task: str = ""
    ) -> CallToolResult:
        """Say what a ranking would cost, and the least difference that it would tell."""
        return answer(lambda: tools.plan(candidates, seeds, iterations, minutes, task))

    def rank(
        files: Files = [],  # noqa: B006
        sources: Sources = {},  # noqa: B006
        seeds: int = 3,
        iterations: int = 0,
        minutes: float = 0,
        question: str = "",
        task: str = "",
    ) -> CallToolResult:
        """Train candidates with champion and baselines on new seeds. Returns a job at once; then ask status."""
        return answer(lambda: tools.rank(files, sources, seeds, iterations, minutes, question, task))

    def status(job: str = "", wait: float = 0) -> CallToolResult:
        """Say how far a job is, or the last jobs; wait up to 50 seconds for its end."""
        return answer(lambda: tools.status(job, wait))

    def result(job: str) -> CallToolResult:
        """Return the verdicts of a job that is done."""
        return answer(lambda: tools.result(job))

    def explain(job: str, candidate: str, versus: str = "human") -> CallToolResult:
        """Say where in the episode and the training two candidates differ, and what their rewards consist of."""
        return answer(lambda: tools.explain(job, candidate, versus))

    def terms(files: Files = [], sources: Sources = {}, seeds: int = 3, iterations: int = 0) -> CallToolResult:  # noqa: B006
        """Train one candidate with each reward term left out, halved and doubled. Returns a job."""
        return answer(lambda: tools.terms(files, sources, seeds, iterations))

    def sweep(
        numbers: Annotated[dict[str, list[float]], Field(description="values by name of a term or number")],
        files: Files = [],  # noqa: B006
        sources: Sources = {},  # noqa: B006
        seeds: int = 3,
        iterations: int = 0,
    ) -> CallToolResult:
        """Train one candidate with other factors of its terms, or other numbers. Returns a job."""
        return answer(lambda: tools.sweep(files, sources, numbers, seeds, iterations))

    def policy(job: str, candidate: str) -> CallToolResult:
        """Return the files of a trained policy: ONNX, description, model, videos."""
        return answer(lambda: tools.policy(job, candidate))

    def final(seeds: int = 10) -> CallToolResult:
        """Train champion and human as in its ranking, on seeds of their own; one time for each N attempts."""
        return answer(lambda: tools.final(seeds))

    for each in (tasks, describe, check, plan, rank, status, result, explain, terms, sweep, policy, final):
        tool(each)
    return server


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
