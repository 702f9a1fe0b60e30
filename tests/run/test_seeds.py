"""The number of seeds that a run takes with ``seeds=auto``: by definition, within memory and devices, and kept."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers import CARTPOLE_QUICK, TABLES, TINY, TINY_WORDS, assert_same_policies, results, run, write_candidates

import envcoder_bench
from envcoder_bench.cli.eval_shapers import main
from envcoder_bench.core.errors import UserError
from envcoder_bench.core.yaml_files import read_yaml
from envcoder_bench.run import seeds
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.run.hooks import Reporter, StopRequest
from envcoder_bench.run.inputs import resolve
from envcoder_bench.run.prepare.plan import MemoryPlanner
from envcoder_bench.run.seeds import RATES, Load, settle_seeds, slowdown, step_time
from envcoder_bench.run.spec import RunSpec

ROOT = Path(__file__).resolve().parents[2]
ONE_ON_A_CPU = (
    "1 seed for each candidate (seeds=auto on a CPU): it says nothing about the spread of seeds; --seeds 3 trains three"
)
COSINE = {"cosine": "def compute_reward(pole_angle):\n    return torch.cos(pole_angle)\n"}
WORDS = [
    *CARTPOLE_QUICK, "--num_envs_per_candidate", 4, "--learning_iterations", 2, *TINY_WORDS,
]  # fmt: skip


def auto(*overrides, device="cuda:0"):
    return compose_config("Cartpole", [*overrides, f"device={device}"])


# prediction


def test_each_rate_is_that_of_a_record():
    records = [json.loads(line) for line in (ROOT / "benchmarks" / "benchmarks.jsonl").read_text().splitlines()]
    measured = {
        (own["candidates"] * own["envs"], round(own["training"]))
        for own in records
        if own["kind"] == "scaling" and own["device"] == "cuda" and own["date"] > "2026-11-23"
    }
    assert set(RATES.items()) <= measured


def test_time_is_interpolated_in_logarithms():
    for envs, rate in RATES.items():
        assert step_time(envs) == pytest.approx(envs / rate)
    least, second, *_, last = RATES
    assert step_time(2048) == pytest.approx(math.sqrt(step_time(1024) * step_time(4096)))
    assert step_time(256) == pytest.approx(step_time(least) ** 2 / step_time(second))  # the same line goes on
    assert step_time(3 * last) == pytest.approx(3 * step_time(last))  # no faster than the last
    assert step_time(1000, multiprocessors=66) == pytest.approx(step_time(2000))


# choice


class Device:
    """Devices that hold so many groups each; the waves are as few as fit, equally many for each device."""

    def __init__(self, candidates, capacity, devices):
        self.candidates, self.capacity, self.devices = candidates, capacity, devices

    def load(self, count):
        groups = self.candidates * count
        for waves in range(1, groups + 1):
            largest = -(-groups // waves)
            if largest <= self.capacity and (waves % self.devices == 0 or waves == groups):
                return Load(largest, -(-waves // self.devices))
        raise AssertionError

    def expected(self, num_envs):
        """The definition, in other words."""
        sizes = np.log(list(RATES))
        times = sizes - np.log(list(RATES.values()))

        def seconds(load):
            x = math.log(load.groups * num_envs)
            if x < sizes[0]:
                slope = (times[1] - times[0]) / (sizes[1] - sizes[0])
                return load.waves * math.exp(times[0] + slope * (x - sizes[0]))
            return load.waves * math.exp(np.interp(x, sizes, times) + max(0.0, x - sizes[-1]))

        one = self.load(1)
        fitting = [k for k in (2, 3, 4, 5) if self.load(k).waves <= one.waves]
        return max([1, *(k for k in fitting if seconds(self.load(k)) < (2 - 1e-9) * seconds(one))])


@pytest.mark.parametrize("devices", [1, 2, 8])
@pytest.mark.parametrize("num_envs", [16, 256, 4096])
def test_choice_is_the_most_that_take_less_than_twice_the_time(num_envs, devices):
    cfg, found = auto(f"num_envs_per_candidate={num_envs}"), set()
    for candidates in [*range(1, 40), 64, 100, 250, 999, 4000]:
        for capacity in (1, 7, 30, 100, 10**6):
            own = Device(candidates, capacity, devices)
            count, line = settle_seeds(cfg, own.load, devices)
            assert count == own.expected(num_envs), (candidates, capacity)
            assert own.load(count).waves == own.load(1).waves
            assert line.startswith(f"{count} seed{'s' * (count > 1)} for each candidate (seeds=auto: ")
            assert math.isinf(slowdown(own.load(5), own.load(1), num_envs)) or "wave" not in line
            found.add(count)
    assert {1, 2, 3} <= found


@pytest.mark.parametrize(
    "load, devices, line",
    [
        (
            lambda k: Load(20 * k, 1), 1,
            "3 seeds for each candidate (seeds=auto: 60 groups of 256 environments take 1.86 times as long an"
            " iteration as 20; --seeds N sets it)",
        ),
        (
            lambda k: Load(4 * k, 1 + (k > 2)), 2,
            "2 seeds for each candidate (seeds=auto: 8 groups of 256 environments on each device take 1.16 times as"
            " long an iteration as 4, and 3 seeds need 2 waves on a device instead of 1; --seeds N sets it)",
        ),
        (lambda k: Load(0, 0), 1, ""),
    ],
)  # fmt: skip
def test_line_says_what_was_chosen_and_why(load, devices, line):
    assert settle_seeds(auto(), load, devices) == (int(line.split()[0] if line else 1), line)


@pytest.mark.parametrize(
    "overrides, device, total, why",
    [
        ([], "cpu", False, "on a CPU"),
        (["race.enabled=true"], "cuda:0", False, "in a race"),
        (["isolate=process"], "cuda:0", False, "with --isolate process, which trains one seed after another"),
        (["train.params.algo.name=mine:Trainer"], "cuda:0", False, "with the trainer mine:Trainer, whose time"),
        ([], "cuda:0", True, "with --num_envs, which all seeds would share"),
    ],
)
def test_one_seed_where_there_is_no_choice(overrides, device, total, why):
    cfg = auto(*overrides, device=device)
    assert seeds.most_seeds(cfg, total) == 1
    count, line = settle_seeds(cfg, lambda count: pytest.fail("nothing is measured"), shared_total=total)
    assert count == 1 and line.startswith(f"1 seed for each candidate (seeds=auto {why}")
    asked = auto("seeds=3", *overrides, device=device)
    assert settle_seeds(asked, lambda count: pytest.fail("nothing is measured"), shared_total=total) == (3, "")


def test_last_seed_is_one_that_numpy_takes():
    cfg = auto(f"seed={2**32 - 2}")
    assert settle_seeds(cfg, lambda count: Load(count, 1))[0] == 2


def test_fewer_multiprocessors_take_fewer_seeds():
    chosen = [settle_seeds(auto(), lambda count: Load(12 * count, 1), 1, number)[0] for number in (132, 40, 10)]
    assert chosen == [4, 2, 2]


@pytest.mark.slow
def test_planner_gives_the_waves_of_each_number_of_seeds():
    widths = {"a": (4, 1), "b": (9, 1), "c": (4, 1)}
    cfg = compose_config("Cartpole", ["sim=mujoco_cpu", "device=cpu", "seeds=2"])
    needed = MemoryPlanner(RunSpec.of(cfg)).bytes([own for own in widths.values() for _ in range(2)])
    for limit, loads in ((needed, [Load(3, 1), Load(6, 1), Load(5, 2)]), (needed - 1, [Load(3, 1), Load(3, 2)])):
        cfg = compose_config("Cartpole", ["sim=mujoco_cpu", "device=cpu", f"max_memory={limit}B"])
        planner = MemoryPlanner(RunSpec.of(cfg))
        assert [planner.load(widths, count) for count in range(1, len(loads) + 1)] == loads
    assert [planner.load(widths, count, devices=2) for count in (1, 2, 3)] == [Load(2, 1), Load(3, 1), Load(5, 1)]


# runs


def number(folder):
    return read_yaml(folder / "config.yaml").seeds


@pytest.mark.slow
def test_run_on_a_cpu_takes_one_seed_and_says_so(tmp_path, capsys):
    files = write_candidates(tmp_path / "files", COSINE)
    output = run(tmp_path / "run", *WORDS, "--candidates", *files)
    assert capsys.readouterr().err.count(f"\n{ONE_ON_A_CPU}\n") == 1
    assert number(output) == 1 and type(number(output)) is int
    assert ONE_ON_A_CPU in (output / "run.log").read_text()
    assert main(["--extend", str(output), "--seeds", "2"]) == 0
    assert number(output) == 2 and "for each candidate (seeds" not in capsys.readouterr().err


@pytest.mark.slow
def test_chosen_number_gives_the_same_run_as_the_number_itself(tmp_path, capsys, chooses):
    sources = {**COSINE, "fails": "def compute_reward(:\n"}
    files = write_candidates(tmp_path / "files", sources)
    chooses(3)
    output = run(tmp_path / "run", *WORDS, "--candidates", *files, "--profile")
    err = capsys.readouterr().err
    assert "3 seeds for each candidate (seeds=auto: 9 groups of 4 environments take 1." in err  # not of the failed one
    assert err.index("memory: about") < err.index("3 seeds for each candidate")
    asked = run(tmp_path / "asked", *WORDS, "--candidates", *files, "--seeds", 3)
    for name in TABLES:
        assert (output / name).read_bytes() == (asked / name).read_bytes(), name
    assert_same_policies(output, asked, 3 * 4)
    rows = results(output)
    assert set(rows.index) == {"human", "unshaped", "untrained", *sources}
    assert all(list(own) == [0, 1, 2] for _, own in rows.groupby(level=0)["seed"])
    configs = [RunFolder(folder).read()[0] for folder in (output, asked)]
    assert configs[0].model_copy(update={"profile": False}) == configs[1] and type(number(output)) is int


@pytest.mark.slow
def test_resumed_and_extended_runs_keep_the_number(tmp_path, caplog, chooses):
    class Stop(Reporter):
        def iteration_done(self, iteration, env_steps, best):
            stop()

    chooses(2)
    settings = {"num_envs_per_candidate": 4, "learning_iterations": 3, "device": "cpu", "evaluation.final_episodes": 4}
    settings.update({"evaluation.num_envs": 4, "evaluation.points": 1, **TINY})
    stop = StopRequest()
    asked = {"output_dir": tmp_path / "run", "seeds": "auto", "overrides": settings}
    stopped = envcoder_bench.evaluate("Cartpole", COSINE, reporter=Stop(), stop=stop, **asked)
    assert not stopped.complete and number(tmp_path / "run") == 2
    chooses(4)
    caplog.clear()
    envcoder_bench.resume(tmp_path / "run")
    assert "seeds=auto" not in caplog.text
    more = {"later": "def compute_reward(pole_vel):\n    return -pole_vel.abs()\n"}
    extended = envcoder_bench.extend(tmp_path / "run", more)
    assert set(extended.results["candidate"]) == {"human", "unshaped", "untrained", "cosine", "later"}
    assert all(sorted(own) == [0, 1] for _, own in extended.results.groupby("candidate")["seed"])
    again = envcoder_bench.extend(tmp_path / "run", seeds=3)  # baselines, too
    assert set(again.results.groupby("candidate")["seed"].count()) == {3} and number(tmp_path / "run") == 3


@pytest.mark.slow
def test_total_of_environments_is_not_divided_among_more_seeds(tmp_path, chooses, monkeypatch, capsys):
    monkeypatch.setattr(seeds, "_why_one", lambda cfg, shared_total: "with a total" if shared_total else "")
    files = write_candidates(tmp_path / "files", COSINE)
    words = [*CARTPOLE_QUICK, "--learning_iterations", 1, "--candidates", *files, "--num_envs", 12]
    output = run(tmp_path / "run", *words)
    assert number(output) == 1 and read_yaml(output / "config.yaml").num_envs_per_candidate == 4
    assert "(seeds=auto with a total)" in capsys.readouterr().err


# bad input


@pytest.mark.parametrize(
    "value, shown", [("1.5", "1.5"), ("0", "0"), ("-1", "-1"), ("true", "True"), ("two", "two"), ("null", "None")]
)
def test_bad_numbers_are_refused(value, shown):
    with pytest.raises(UserError, match=f"^seeds must be a whole number of at least 1, or auto, got {shown}$"):
        resolve("Cartpole", ["device=cpu", f"seeds={value}"])


def test_auto_is_refused_in_a_race_only_where_it_is_asked_for():
    assert resolve("Cartpole", ["device=cpu", "race.enabled=true"]).config.seeds == "auto"
    with pytest.raises(UserError, match=r"^seeds=auto with a race: .* give a number, such as --seeds 3, or omit it"):
        resolve("Cartpole", ["device=cpu", "race.enabled=true", "seeds=auto"])


@pytest.mark.slow
def test_extension_and_resumption_need_a_number(tmp_path, capsys):
    files = write_candidates(tmp_path / "files", COSINE)
    output = run(tmp_path / "run", *WORDS, "--no_baselines", "--candidates", *files)
    capsys.readouterr()
    assert main(["--extend", str(output), "--seeds", "auto"]) == 2
    error = "--extend: --seeds must be a whole number, the total of the extended run, got auto"
    assert capsys.readouterr().err == f"eval-shapers: error: {error}\n"
    begun = shutil.copytree(output, tmp_path / "begun")
    (begun / "summary.json").unlink()
    (begun / "run.json").unlink()  # nothing says what the number was
    text = (begun / "config.yaml").read_text()
    (begun / "config.yaml").write_text(text.replace("seeds: 1", "seeds: auto"))
    assert main(["--resume", str(begun)]) == 2
    assert "seeds must be the number of seeds that the run began with, got auto" in capsys.readouterr().err
