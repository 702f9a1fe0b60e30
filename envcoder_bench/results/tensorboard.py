"""TensorBoard logs: one run ``<candidate>/seed_<k>`` for every candidate and seed."""

import math
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import google_crc32c

from envcoder_bench.core.files import naming, no_links

FLUSH_EVENTS = 64


class TensorboardLog:
    """Writes scalars over env_steps to ``folder/<candidate>/seed_<k>/``.

    Files are open only while events are appended, and without threads, so that a thousand candidates need neither
    a thousand file handles nor a thousand threads. A resumed run begins a new event file in each folder, whose first
    event makes TensorBoard discard later steps of older files.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._pending: dict[tuple[str, int], list[Any]] = {}
        self._files: dict[tuple[str, int], Path] = {}

    def add(self, candidate: str, seed: int, env_steps: int, scalars: Mapping[str, float | None]) -> None:
        """Add scalars at step ``env_steps``, without None and NaN.

        They are written at the next evaluation (scalars with ``fitness``) or after FLUSH_EVENTS events.
        """
        event = _messages().Event(wall_time=time.time(), step=env_steps)
        for name, value in scalars.items():
            if value is not None and not math.isnan(value):
                event.summary.value.add(tag=name, simple_value=value)
        pending = self._pending.setdefault((candidate, seed), [])
        pending.append(event)
        fitness = scalars.get("fitness")
        if (fitness is not None and not math.isnan(fitness)) or len(pending) >= FLUSH_EVENTS:
            self._write(candidate, seed)

    def flush(self) -> None:
        """Write pending scalars."""
        for candidate, seed in list(self._pending):
            self._write(candidate, seed)

    def close(self) -> None:
        self.flush()

    def _write(self, candidate: str, seed: int) -> None:
        events = self._pending.pop((candidate, seed))
        path = self._files.get((candidate, seed))
        if path is None:
            path, first = self._begin(candidate, seed, events[0].step)
            self._files[candidate, seed] = path
            events = first + events
        with naming(path), open(path, "ab", opener=no_links) as file:
            file.write(b"".join(_record(event.SerializeToString()) for event in events))

    def _begin(self, candidate: str, seed: int, step: int) -> tuple[Path, list[Any]]:
        """Return the next file of a folder and its first events."""
        folder = self._folder / candidate / f"seed_{seed}"
        folder.mkdir(parents=True, exist_ok=True)
        older = len(list(folder.glob("events.out.tfevents.[0-9]*")))
        now = time.time()
        make = _messages()
        first = [make.Event(wall_time=now, file_version="brain.Event:2")]
        if older:
            start = make.SessionLog(status=make.SessionLog.START)
            first.append(make.Event(wall_time=now, step=step, session_log=start))
        return folder / f"events.out.tfevents.{older:04d}", first  # read in the order of names


def _messages() -> Any:
    """Import TensorBoard's protocol buffers late, because tensorboardX takes a second or more."""
    from tensorboardX.proto import event_pb2

    return event_pb2


def _record(data: bytes) -> bytes:
    """Frame an event as TFRecord: length, its checksum, data, its checksum."""
    length = struct.pack("<Q", len(data))
    return length + _checksum(length) + data + _checksum(data)


def _checksum(data: bytes) -> bytes:
    """Return TFRecord's checksum; tensorboardX's own takes more time than all else of an event."""
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
