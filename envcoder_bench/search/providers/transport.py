"""The HTTP client of an SDK with limits on the time and size of replies."""

import importlib
import time
from collections.abc import Iterator
from typing import Any

MAX_BYTES = 64 << 20  # of one response: about a hundred times what models write


class TooLarge(Exception):
    """A response is larger than MAX_BYTES."""


def http_client(sdk: Any, timeout: float) -> Any:
    """Return the SDK's HTTP client, with a limit of ``timeout`` seconds for the whole reply and of MAX_BYTES."""
    http = importlib.import_module(sdk.DefaultHttpxClient.__mro__[1].__module__.split(".")[0])

    class Limited(http.SyncByteStream):
        def __init__(self, stream: Any) -> None:
            self._stream = stream
            self._end = time.monotonic() + timeout
            self._left = MAX_BYTES

        def __iter__(self) -> Iterator[bytes]:
            for chunk in self._stream:
                self._left -= len(chunk)
                if self._left < 0:
                    raise TooLarge(f"it has more than {MAX_BYTES >> 20} MiB")
                if time.monotonic() > self._end:
                    raise http.ReadTimeout("the reply took too long")
                yield chunk

        def close(self) -> None:
            self._stream.close()

    def limit(response: Any) -> None:
        response.stream = Limited(response.stream)

    return sdk.DefaultHttpxClient(timeout=http.Timeout(timeout, connect=10.0), event_hooks={"response": [limit]})
