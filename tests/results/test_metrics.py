import math
import os
import sys

import pytest
from forked import Forked

from envcoder_bench.results.metrics import METRICS
from envcoder_bench.results.ranking import rank
from envcoder_bench.results.rows import FAILED, Result
from envcoder_bench.shaping.contract import Fault

# the last field of Metrics, and one more behind it
LAST = 'hacked: str = metric("", first)'
MORE = f'{LAST}\n    energy: float = metric(NAN, mean, title="energy, J", short="J", note="J: joules of an episode")'
PROGRAM = f"""
import importlib.util, sys
from pathlib import Path

name = "envcoder_bench.results.metrics"
spec = importlib.util.find_spec(name)
module = sys.modules[name] = importlib.util.module_from_spec(spec)
text = Path(spec.origin).read_text()
assert text.count({LAST!r}) == 1
exec(compile(text.replace({LAST!r}, {MORE!r}), spec.origin, "exec"), module.__dict__)

from envcoder_bench.report.page.ranking import ranking_values
from envcoder_bench.report.table import render_table
from envcoder_bench.results.ranking import rank, summary, write_summary
from envcoder_bench.results.rows import Result, read_results, write_results

rows = [Result("a", seed, "ok", 0.5 + seed, energy=30.0 + 4 * seed) for seed in range(2)]
rows.append(Result("b", 0, "ok", 0.25))
write_results("results.csv", rows)
ranked = rank(read_results("results.csv"))
assert [row.energy for row in ranked][:1] == [32.0], ranked
write_summary("summary.json", summary(ranked, {{}}, {{}}))
assert "32.0" in open("summary.json").read()
page = ranking_values(ranked, {{"a": "a", "b": "b"}}, {{}}, "RUN", None)
assert ("energy, J", "number", "descending", "") in page["columns"], page["columns"]
assert page["rows"][0]["cells"]["energy, J"].text == "32"
print(render_table(ranked, "meaning"))
"""


@pytest.mark.slow
def test_a_metric_is_added_in_one_place(tmp_path):
    """In a fork, which imports the package anew."""
    printed = tmp_path / "stdout"

    def work():
        for name in [name for name in sys.modules if name.split(".")[0] == "envcoder_bench"]:
            del sys.modules[name]
        os.chdir(tmp_path)
        exec(PROGRAM, {})
        sys.stdout.flush()
        return 0

    done = Forked(work, tmp_path / "stderr", str(printed)).waited()
    assert done.returncode == 0, done.communicate()[1]
    shown = printed.read_text(encoding="utf-8")
    head, row = (line.split() for line in shown.splitlines() if line.split()[:1] in (["#"], ["1"]))
    assert dict(zip(reversed(head), reversed(row)))["J"] == "32" and "J: joules of an episode" in shown


def test_metrics_join_over_seeds():
    values = {"episodes": 8, "episode_length": 10.0, "shaped_return": 3.0, "env_steps": 100, "unstable_resets": 1,
              "training_episodes": 20, "contact_overflows": 2, "stopped_at": 4, "reason": "late",
              "ended": "3 fell, 1 off",
              "half_step_fitness": 0.5, "hacked": "fell"}  # fmt: skip
    assert set(values) == set(METRICS)
    other = {**values, "episode_length": 20.0, "shaped_return": math.inf, "reason": "", "stopped_at": 6}
    failed = Result("a", 2, FAILED, env_steps=50, episode_length=1.0, fault=Fault("no", "a.py", 1))
    (row,) = rank([Result("a", 0, "stopped", 1.0, **values), Result("a", 1, "stopped", 2.0, **other), failed])
    joined = {name: getattr(row, name) for name in METRICS}
    assert joined == {
        "episodes": 16,
        "episode_length": 15.0,  # of the seeds with a fitness
        "shaped_return": 3.0,  # without the one that diverged
        "env_steps": 250,  # of all seeds
        "unstable_resets": 2,
        "training_episodes": 40,
        "contact_overflows": 4,
        "stopped_at": 6,
        "reason": "late",
        "ended": "6 fell, 2 off",
        "half_step_fitness": 0.5,
        "hacked": "fell",
    }
