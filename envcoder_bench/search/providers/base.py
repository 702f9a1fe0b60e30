"""Requests to language models, their replies, and the interface of providers."""

from dataclasses import dataclass, field
from typing import Protocol

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
    """A request to a model. Requests are equal if everything but their labels is equal.

    Attributes:
        system: the system prompt; may be empty.
        messages: the conversation, ending with the user's turn.
        temperature: None for the model's default; ignored by models without this parameter.
        max_output_tokens: limit of the reply's tokens including hidden reasoning; None for the provider's default.
        sample: index of one of several independent replies to the same prompt.
        attempt: number of earlier attempts whose replies were not usable; set by ``complete_all``.
        label: the candidate for which it is sent, for messages and replays: ``r2_03``, ``r2_03 repair 1``.
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
    """The result of a request.

    Attributes:
        text: the model's text; empty if there is none.
        input_tokens, output_tokens: the provider's counts; from ``complete_all``, of all attempts.
        cost: upper limit of the cost in US dollars; None if the model's price is unknown.
        finish: ``stop``; ``length``: cut off; ``refusal``: the model or a filter declined; ``error``: no reply after
            all retries; ``budget``: not sent, because it could have exceeded the budget.
        error: why the text is missing or unusable, in one line; otherwise empty.
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
    """A request got no reply, also after retries.

    Attributes:
        malformed: whether the server answered, but not with a reply of its protocol.
    """

    def __init__(self, message: str, malformed: bool = False) -> None:
        super().__init__(message)
        self.malformed = malformed


class Provider(Protocol):
    """A model that answers requests; thread-safe.

    Attributes:
        name: name of model and server, ``openai:gpt-4.1`` or ``openai:qwen3@http://localhost:11434/v1``; part of the
            transcript's keys.
        model: the model's name, by which prices are looked up.
        default_output_tokens: limit of a reply's tokens if the request has none.
    """

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def default_output_tokens(self) -> int: ...

    def complete(self, request: Request) -> Reply:
        """Return the reply to a request; failures are retried. Its ``cost`` may be None; ``complete_all`` sets it.

        Raises:
            ProviderError: if no reply came.
            UserError: if no request can succeed, for instance with a wrong key or an unknown model.
        """
        ...


def max_input_tokens(request: Request) -> int:
    """Return an upper bound of the prompt's tokens: one per byte, and a few for each message."""
    texts = [request.system, *(message.text for message in request.messages)]
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts) + 16 * (len(texts) + 1)
