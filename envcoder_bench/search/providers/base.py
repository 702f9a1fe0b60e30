"""What is asked of a language model, what it answers, and the contract of those that answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

STOP = "stop"
LENGTH = "length"
REFUSAL = "refusal"
ERROR = "error"
BUDGET = "budget"
FINISHES = (STOP, LENGTH, REFUSAL, ERROR, BUDGET)


@dataclass(frozen=True)
class Message:
    """One turn of a conversation; ``role`` is ``user`` or ``assistant``."""

    role: str
    text: str


@dataclass(frozen=True)
class Request:
    """One question to a model. Two requests are the same when all but their labels are equal.

    Attributes:
        system: the system prompt; may be empty.
        messages: the conversation, ending with the user's turn.
        temperature: None leaves it to the model, as do models that take none.
        max_output_tokens: most tokens of the reply, hidden reasoning included; None is the provider's default.
        sample: which of several independent replies to the same question.
        attempt: how often it was asked before because the reply did not do; complete_all counts it.
        label: whose request it is, for people and for replays: ``r2_03``, ``r2_03 repair 1``.
    """

    system: str
    messages: tuple[Message, ...]
    temperature: float | None = None
    max_output_tokens: int | None = None
    sample: int = 0
    attempt: int = 0
    label: str = field(default="", compare=False)


@dataclass(frozen=True)
class Reply:
    """What came of a request.

    Attributes:
        text: the model's text; empty where there is none.
        input_tokens, output_tokens: as the provider counted them; what complete_all returns counts all attempts.
        cost: US dollars for these tokens, at most; None where the model's price is unknown.
        finish: ``stop``; ``length``: cut off; ``refusal``: the model or a filter declined; ``error``: no reply after
            all retries; ``budget``: not asked, because it could have exceeded the budget.
        error: one line that says why there is nothing usable; empty when there is.
    """

    text: str
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    finish: str = STOP
    error: str = ""

    def __post_init__(self) -> None:
        if self.finish not in FINISHES:
            raise ValueError(f"finish {self.finish!r}; it must be one of {', '.join(FINISHES)}")


class ProviderError(Exception):
    """A request got no reply this time; another try may.

    Attributes:
        kind: what happened, in a word: ``rate_limit``, ``timeout``, ``connection``, ``server``, ``malformed``,
            ``request``.
        retry_after: seconds that the server asks to wait; None where it does not say.
        again: whether another try makes sense.
    """

    def __init__(self, kind: str, message: str, retry_after: float | None = None, again: bool = True) -> None:
        super().__init__(message)
        self.kind = kind
        self.retry_after = retry_after
        self.again = again


class Provider(Protocol):
    """A model that answers requests; safe to call from several threads at once.

    Attributes:
        name: who answers, ``openai:gpt-4.1`` or ``openai:qwen3@http://localhost:11434/v1``: part of what makes two
            requests the same.
        model: the model's name alone, by which prices are looked up.
        default_output_tokens: most tokens of a reply where the request does not say.
        recorded: whether it plays replies that are already paid, so that there is nothing to wait for.
    """

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def default_output_tokens(self) -> int: ...

    @property
    def recorded(self) -> bool: ...

    def complete(self, request: Request) -> Reply:
        """Ask once; no retries. The reply's ``cost`` may be None: complete_all prices it.

        Raises:
            ProviderError: no reply this time.
            UserError: no request will ever be answered: wrong key, unknown model.
        """
        ...


@runtime_checkable
class SeveralReplies(Provider, Protocol):
    """A provider that gives several replies to one request, whose prompt is then paid once.

    Attributes:
        most_replies: how many at most, as far as is known by now; 1 where it turned out to give one alone.
    """

    @property
    def most_replies(self) -> int: ...

    def complete_several(self, request: Request, count: int) -> list[Reply]:
        """Ask once for ``count`` replies; as ``Provider.complete`` otherwise.

        Returns:
            1 to ``count`` replies. Their tokens add up to what the provider counted.
        """
        ...


def most_input_tokens(request: Request) -> int:
    """An upper bound of the prompt's tokens: no token is shorter than a byte, and a turn adds a few marks."""
    texts = [request.system, *(message.text for message in request.messages)]
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts) + 16 * (len(texts) + 1)
