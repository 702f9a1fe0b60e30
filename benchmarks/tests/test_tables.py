"""Tables and pictures: which records they show, and what they say."""

from bench.tables import table
from pages import learning_tables, plots, tables


def shown(kind, rows):
    return table(tables.COLUMNS[kind], rows)


def point(task, candidate, k, fitness, run="2026-01-02 03:04:05", together="human and unshaped", **more):
    about = {"label": "box", "machine": "a box", "date": "2026-01-02 03:04", "command": f"train {task}"}
    own = {"kind": "learning", "what": f"{task}: {together}", "run": run, "task": task, "candidate": candidate}
    own["device"] = "cuda"
    size = {"envs": 8, "seeds": len(fitness), "policies": 4, "episodes": 4, "iteration": k, "env_steps": k * 10**6}
    return {**own, **size, "point": k, "seconds": 10.0 * k, "fitness": fitness, "length": fitness, **about, **more}


def ant(run="2026-01-02 03:04:05", best=6.0, **more):
    human = [point("Ant", "human", k, [x - 0.5, x + 0.5], run, **more) for k, x in ((1, 2.0), (2, 5.0), (3, best))]
    return human + [point("Ant", "unshaped", k, [1.0, 1.5], run, **more) for k in (1, 2, 3)]


def test_latest_training_is_reported_with_all_its_parts():
    before = "2026-01-01 00:00:00"
    old = [*ant(before, 9.0), point("Ant", "human", 4, [9.0, 9.0], before)]
    parts = ant()
    human, unshaped = learning_tables.learning_rows(parts[:2] + old + parts[2:])
    assert (human["point"], human["fitness"]) == (3, [5.5, 6.5]) and unshaped["fitness"] == [1.0, 1.5]
    lines = shown("learning", [human, unshaped])
    assert lines[2].endswith("| 30 s | 3.0 M | 6.00 ± 6.35 | 5 within 60 s: after 20 s, 2.0 M |")  # t(1) = 12.7
    assert lines[3].endswith("| 1.25 ± 3.18 |  |")


def test_failed_seeds_are_counted_separately():
    assert learning_tables.interval([1.0, None, 1.0]) == "1.00 ± 0.00 (1 failed)"
    assert learning_tables.interval([None, None]) == "failed" and learning_tables.interval([0.5]) == "0.50"
    (row,) = learning_tables.learning_rows([point("Ant", "human", 1, [None, None])])
    assert row["reached"] is None and "failed" in shown("learning", [row])[2]


def test_curves_have_distinct_styles_and_fit_the_limits():
    alone = [point("Ant", "human", 1, [2.0, 3.0], together="human", policies=2)]
    other = [point("Ant", name, 1, [0.1, 0.2], together=name) for name in ("a", "b")]
    own = learning_tables.curves(ant() + alone + other)
    looks = plots._looks(own)
    assert len({(look["color"], look["linestyle"]) for look in looks}) == len({look["label"] for look in looks}) == 5
    low, high = plots._limits(own, 5.0)
    assert low < 0.0 and high > 6.0  # the best mean
    failed = [[point("Ant", "human", 1, [None, None])], [point("Ant", "unshaped", 1, [0.0, 0.0])]]
    low, high = plots._limits(failed, None)
    assert low < 0.0 < high < 10.0


def scaling(candidates, training, **more):
    about = {"label": "box", "machine": "box, 2 cores", "date": "2027-01-02 03:04", "command": "c", "device": "cpu"}
    row = {"kind": "scaling", "candidates": candidates, "envs": 8, "physics": 1000.0, "memory_gib": 1.5}
    return {**row, "training": training, "startup_s": 3.0, **about, **more}


def test_processes_are_compared_on_the_same_machine_and_size():
    alone = {**scaling(0, 0.0), "kind": "processes", "processes": 8, "each": [5.0] * 8, "total": 40.0}
    known = [scaling(250, 800.0), scaling(1000, 900.0), scaling(250, 1.0, label="other"), scaling(250, 2.0, envs=9)]
    assert shown("processes", tables.select("processes", [alone, *known]))[-1] == (
        "| 8 x 8 | 5 | 40 | 800 (250 candidates) | 20.0 |"
    )
    assert shown("processes", tables.select("processes", [alone]))[-1] == "| 8 x 8 | 5 | 40 |"


def test_several_devices_are_compared_with_one():
    rows = [
        {**scaling(8, 0.0), "kind": "devices", "count": n, "training": rate, "first_iteration_s": 9.0, "seconds": 60.0}
        for n, rate in ((1, 100.0), (2, 190.0))
    ]
    assert shown("devices", tables.select("devices", rows))[-1] == "| 2 | 8 x 8 | 190 | 1.90 | 9 s | 1.0 min |"
    assert shown("devices", tables.select("devices", rows[1:]))[-1] == "| 2 | 8 x 8 | 190 | 9 s | 1.0 min |"


def test_speed_names_the_card_of_each_row():
    about = {"kind": "scaling", "envs": 256, "physics": 2e6, "memory_gib": 1.0, "device": "cuda", "machine": "x, W 1"}
    rows = [
        {**about, "candidates": 4, "label": "H200", "training": 1e6, "date": "2026-01-02 00:00"},
        {**about, "candidates": 4, "label": "H100 80GB", "training": 1.5e6, "date": "2026-01-03 00:00"},
        {**about, "candidates": 250, "label": "H200", "training": 1.2e6, "date": "2026-01-01 00:00"},
        {**about, "candidates": 250, "label": "2 CPU cores", "training": 1.0, "date": "2026-01-09", "device": "cpu"},
    ]
    assert shown("speed", tables.select("speed", rows))[2:] == [
        "| 4 x 256 | 1.50 M | 75 % | 1.0 GiB | H100, W 1, 2026-01-03 |",
        "| 250 x 256 | 1.20 M | 60 % | 1.0 GiB | H200, W 1, 2026-01-01 |",
    ]


def test_seeds_of_several_records_are_one_row_up_to_the_end_of_the_shortest():
    def record(side, day, *seeds, points=2):
        curves = {key: [list(seeds)] * points for key in ("fitness", "reward")}
        about = {"task": "Go1", "label": "H200", "envs": 4, "date": f"2026-11-{day} 10:00", "id": f"{side}-{seeds}"}
        steps = [10 * (k + 1) for k in range(points)]
        return {"kind": "mjlab_learning", "side": side, "seeds": len(seeds), "env_steps": steps, **curves, **about}

    older = record("ours", 26, 9.0, points=1)
    ours, first, second = record("ours", 27, 1.0, 2.0, points=3), record("mjlab", 27, 3.0), record("mjlab", 27, 4.0)
    rows = tables.select("mjlab_learning", [older, first, ours, second])
    assert [(row["side"], row["seeds"], row["env_steps"]) for row in rows] == [
        ("ours", 2, [10, 20]),
        ("mjlab", 2, [10, 20]),
    ]
    assert rows[0]["fitness"] == [[1.0, 2.0]] * 2 and rows[1]["reward"] == [[3.0, 4.0]] * 2
    assert rows[1]["id"] == "mjlab-(3.0,) mjlab-(4.0,)"
