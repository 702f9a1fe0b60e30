"""TensorBoard logs: one run ``<candidate>/seed_<k>`` for every candidate and seed, and its HParams page."""

import math
import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import google_crc32c

from envcoder_bench.core.files import naming, no_links, write_atomic
from envcoder_bench.results.rows import Result

FLUSH_EVENTS = 64
HPARAMS = "events.out.tfevents.hparams"  # the last in the order in which event files are read
HPARAMS_METRICS = ("fitness", "shaped_return")  # scalars of which the HParams page shows the last values


class TensorboardLog:
    """Writes scalars over env_steps to ``folder/<candidate>/seed_<k>/``.

    Files are open only while events are appended, and there are no threads, so that a thousand candidates need neither
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
        (folder / HPARAMS).unlink(missing_ok=True)  # it is written again at the end
        older = len(list(folder.glob("events.out.tfevents.[0-9]*")))
        now = time.time()
        make = _messages()
        first = [make.Event(wall_time=now, file_version="brain.Event:2")]
        if older:
            start = make.SessionLog(status=make.SessionLog.START)
            first.append(make.Event(wall_time=now, step=step, session_log=start))
        return folder / f"events.out.tfevents.{older:04d}", first  # read in the order of names


def write_hparams(folder: Path, hyperparameters: Mapping[str, Mapping[str, Any]], results: Sequence[Result]) -> None:
    """Write the HParams page of a complete run: a group of sessions for each candidate, a session for each seed.

    Args:
        hyperparameters: numbers and words by candidate, with equal keys.
        results: the rows of results.csv; those that never trained have no session.
    """
    from tensorboardX.proto import api_pb2, plugin_hparams_pb2

    make: Any = api_pb2
    messages: Any = plugin_hparams_pb2
    # the experiment: the keys of a session
    keys = next(iter(hyperparameters.values()), {})
    kinds = {key: make.DATA_TYPE_FLOAT64 if _is_number(value) else make.DATA_TYPE_STRING for key, value in keys.items()}
    metrics = [make.MetricInfo(name=make.MetricName(tag=tag), display_name=tag) for tag in HPARAMS_METRICS]
    experiment = make.Experiment(
        name=folder.parent.name,
        time_created_secs=time.time(),
        hparam_infos=[make.HParamInfo(name=key, type=kind) for key, kind in kinds.items()],
        metric_infos=metrics,
    )
    data = messages.HParamsPluginData
    _write_hparams(folder, {"experiment": data(experiment=experiment)})
    # a session for each seed: its numbers, then how it ended
    for row in results:
        session = folder / row.candidate / f"seed_{row.seed}"
        if not session.is_dir():
            continue
        start = messages.SessionStartInfo(group_name=row.candidate, start_time_secs=time.time())
        for key, value in hyperparameters[row.candidate].items():
            if _is_number(value):
                start.hparams[key].number_value = float(value)
            else:
                start.hparams[key].string_value = str(value)
        status = make.STATUS_FAILURE if row.failed else make.STATUS_SUCCESS
        end = messages.SessionEndInfo(status=status, end_time_secs=time.time())
        sessions = {
            "session_start_info": data(session_start_info=start),
            "session_end_info": data(session_end_info=end),
        }
        _write_hparams(session, sessions)


def _write_hparams(folder: Path, data_by_tag: Mapping[str, Any]) -> None:
    """Write an event file with data of the HParams plugin by tag; it replaces the one of a run before its extension."""
    from tensorboardX.proto import summary_pb2

    make, now = _messages(), time.time()
    metadata: Any = summary_pb2.SummaryMetadata  # pyright: ignore[reportAttributeAccessIssue]
    events = [make.Event(wall_time=now, file_version="brain.Event:2")]
    for tag, data in data_by_tag.items():
        event = make.Event(wall_time=now, step=0)
        plugin = metadata.PluginData(plugin_name="hparams", content=data.SerializeToString())
        value = event.summary.value.add(tag=f"_hparams_/{tag}", metadata=metadata(plugin_data=plugin))
        value.tensor.dtype = 1  # float: TensorBoard skips values without a tensor
        value.tensor.float_val.append(0.0)
        events.append(event)
    write_atomic(folder / HPARAMS, b"".join(_record(event.SerializeToString()) for event in events))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


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
