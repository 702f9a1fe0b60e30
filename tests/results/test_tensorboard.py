import os
import struct
import threading

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboardX.record_writer import masked_crc32c

from envcoder_bench.results import tensorboard as own
from envcoder_bench.results.rows import Result
from envcoder_bench.results.tensorboard import TensorboardLog, write_hparams


def scalars(folder):
    read = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    read.Reload()
    return {tag: [(e.step, pytest.approx(e.value)) for e in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


@pytest.mark.parametrize("data", [b"", b"123456789", bytes(range(256)) * 3])
def test_checksum_is_that_of_tensorboardx(data):
    assert own._checksum(data) == struct.pack("<I", masked_crc32c(data))


def test_scalars_round_trip_per_candidate_and_seed(tmp_path):
    log = TensorboardLog(tmp_path)
    for step in (100, 200, 2**40):
        for seed in (0, 1):
            log.add(
                "a", seed, step, {"fitness": 0.1 + seed if step > 100 else None, "kl": 1e-9, "reward/x": float("nan")}
            )
    log.close()
    assert scalars(tmp_path / "a" / "seed_0") == {
        "fitness": [(200, 0.1), (2**40, 0.1)],
        "kl": [(100, 1e-9), (200, 1e-9), (2**40, 1e-9)],
    }
    assert scalars(tmp_path / "a" / "seed_1")["fitness"] == [(200, 1.1), (2**40, 1.1)]


def test_scalars_are_flushed_at_evaluations_and_on_close(tmp_path):
    log = TensorboardLog(tmp_path)
    log.add("a", 0, 1, {"kl": 1.0})
    log.add("a", 0, 2, {"kl": 2.0, "fitness": 0.5})
    assert scalars(tmp_path / "a" / "seed_0")["kl"] == [(1, 1.0), (2, 2.0)]
    log.add("a", 0, 3, {"kl": 3.0})
    log.close()
    assert scalars(tmp_path / "a" / "seed_0")["kl"][-1] == (3, 3.0)


@pytest.mark.parametrize("torn", [0, 5])
def test_resumed_run_replaces_scalars_after_its_checkpoint(tmp_path, torn):
    log = TensorboardLog(tmp_path)
    for step in range(10, 60, 10):
        log.add("a", 0, step, {"fitness": 0.0, "kl": 1.0})
    (file,) = (tmp_path / "a" / "seed_0").iterdir()
    file.write_bytes(file.read_bytes()[: file.stat().st_size - torn])  # killed: never closed, perhaps half an event
    for _ in range(2):
        log = TensorboardLog(tmp_path)
        for step in range(30, 80, 10):
            log.add("a", 0, step, {"fitness": 5.0, "kl": 2.0})
        log.close()
    expected = [(10, 0.0), (20, 0.0), (30, 5.0), (40, 5.0), (50, 5.0), (60, 5.0), (70, 5.0)]
    assert scalars(tmp_path / "a" / "seed_0")["fitness"] == expected


@pytest.mark.slow
def test_1000_candidates_need_no_threads_and_few_open_files(tmp_path):
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    threads = threading.active_count()
    log = TensorboardLog(tmp_path)
    highest = max(map(int, os.listdir("/proc/self/fd")))  # other tests of this process may have left some open
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 32, hard))
    try:
        for k in range(1000):
            log.add(f"c{k:03d}", 0, 1, {"fitness": float(k)})
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert threading.active_count() <= threads
    log.close()
    assert scalars(tmp_path / "c999" / "seed_0")["fitness"] == [(1, 999.0)]


def hparams_page(folder):
    """The HParams page as TensorBoard's own plugin shows it: hyperparameters, status and metrics of each session."""
    from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
    from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
    from tensorboard.context import RequestContext
    from tensorboard.plugins.base_plugin import TBContext
    from tensorboard.plugins.hparams import api_pb2, backend_context, get_experiment, list_session_groups

    multiplexer = EventMultiplexer().AddRunsFromDirectory(str(folder))
    multiplexer.Reload()
    provider = MultiplexerDataProvider(multiplexer, str(folder))
    context, asked = backend_context.Context(TBContext(data_provider=provider)), RequestContext()
    tags = context.hparams_metadata(asked, "")
    experiment = get_experiment.Handler(asked, context, "", api_pb2.GetExperimentRequest(include_metrics=True)).run()
    request = api_pb2.ListSessionGroupsRequest(
        allowed_statuses=[api_pb2.STATUS_SUCCESS, api_pb2.STATUS_FAILURE],
        col_params=[api_pb2.ColParams(metric=info.name) for info in experiment.metric_infos],
        slice_size=99, aggregation_type=api_pb2.AGGREGATION_AVG, include_metrics=True,
    )  # fmt: skip
    found = list_session_groups.Handler(asked, context, "", request).run()
    assert tags
    return experiment, {group.name: group for group in found.session_groups}


def test_hparams_page_has_a_group_for_each_candidate(tmp_path):
    log, rows = TensorboardLog(tmp_path), []
    for k, name in enumerate(("a", "b")):
        for seed in (0, 1):
            log.add(name, seed, 100, {"fitness": 0.0, "shaped_return": 9.0})
            log.add(name, seed, 200, {"fitness": 0.25 * (k + seed), "shaped_return": 10.0 * k})
            rows.append(Result(name, seed, "failed" if name == "b" and seed else "ok", 0.1))
    log.close()
    rows.append(Result("never", 0, "failed at load"))
    known = {
        name: {"candidate": name, "shaper_types": "compute_reward", "learning_rate": 3e-4, "num_envs": 64}
        for name in ("a", "b", "never")
    }
    for _ in range(2):  # as after an extension
        write_hparams(tmp_path, known, rows)
    experiment, groups = hparams_page(tmp_path)
    kinds = {info.name: info.type for info in experiment.hparam_infos}
    assert kinds == {"candidate": 1, "shaper_types": 1, "learning_rate": 3, "num_envs": 3}
    assert {info.name.tag for info in experiment.metric_infos} == {"fitness", "shaped_return"}
    assert set(groups) == {"a", "b"}
    assert groups["a"].hparams["shaper_types"].string_value == "compute_reward"
    assert groups["a"].hparams["learning_rate"].number_value == 3e-4
    means = {name: {m.name.tag: m.value for m in group.metric_values} for name, group in groups.items()}
    assert means == {"a": {"fitness": 0.125, "shaped_return": 0.0}, "b": {"fitness": 0.375, "shaped_return": 10.0}}
    status = {session.name.split("/")[-1]: session.status for session in groups["b"].sessions}
    assert status == {"seed_0": 1, "seed_1": 2}
    assert scalars(tmp_path / "a" / "seed_1")["fitness"][-1] == (200, 0.25)  # the plugin's data changes no scalar
