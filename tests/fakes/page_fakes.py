"""Made-up runs for pages, with texts that try to leave their places."""

import html.parser
import math

import numpy as np
import pandas as pd

from envcoder_bench.report.page.run import PageCandidate, PageEpisode, PageVideos, RunPage
from envcoder_bench.results.pairs import run_pairs
from envcoder_bench.results.ranking import fitness_model, rank
from envcoder_bench.results.rows import FAILED, Result
from envcoder_bench.shaping.contract import Fault

HOSTILE = [
    "<script>window.hacked=1</script>",
    "</script><script>window.hacked=1</script>",
    '"><img src=x onerror="window.hacked=1">',
    "${window.hacked=1}",
    "a&lt;b\u202egnp.exe",
    "<!--",
    "'; window.hacked=1; '",
]
REMARK = f"the term {HOSTILE[0]} is largest when the robot stands still"
SOURCE = '''"""A candidate."""

LIMIT = 0.5  # </pre><script>window.hacked=1</script>


def compute_reward(state_dict):
    text = "<img src=x onerror=window.hacked=1>"
    return LIMIT * state_dict["pole_angle"].cos()
'''


class HtmlPage(html.parser.HTMLParser):
    """A page as a browser sees it: tags with their attributes, the text of its scripts, and all other text."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.scripts, self.text, self._script = [], [], [], False
        self.feed(page)

    @property
    def attributes(self):
        return [pair for _, attributes in self.tags for pair in attributes.items()]

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self._script = True
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._script = self._script and tag != "script"

    def handle_data(self, data):
        if self._script:
            self.scripts[-1] += data
        else:
            self.text.append(data)


def fake_page(names=("first", "second", *HOSTILE), seeds=2, mp4=None, points=40, components=3, source=SOURCE):
    """A page of made-up candidates and both baselines; the last candidate failed, and some names are hostile."""
    random = np.random.default_rng(0)
    results, curves, parts, steps = [], [], [], []
    every = ["human", "unshaped", *names]
    for k, name in enumerate(every):
        for seed in range(seeds):
            level = 0.95 - 0.9 * k / len(every)
            if k == len(every) - 1:
                fault = Fault(f"<b onclick=window.hacked=1>{HOSTILE[0]}", f"/somewhere/{name}.py", 7, "compute_reward")
                results.append(Result(name, seed, FAILED, fault=fault))
                continue
            results.append(
                Result(
                    name,
                    seed,
                    "ok",
                    level + 0.01 * seed,
                    level - 0.5,
                    level + 0.5,
                    episodes=64,
                    episode_length=200.0,
                    shaped_return=3.0,
                    env_steps=999,
                )
            )
            for b in range(1, 51):  # its episodes end one after the other
                active = max(0.0, 1 - 0.02 * b * k / len(every))
                steps.append((points, 100 * points, name, seed, 10 * b, 0.2 * b, active * (1 - 0.1 * seed), active))
            for i in range(1, points + 1):
                fitness = level * i / points if i % 4 == 0 else np.nan
                curves.append((i, 100 * i, name, seed, fitness, 5.0 * i, 0.01, 3e-4, np.nan, 1e7 * random.random()))
                for c in range(components):
                    part = HOSTILE[c % len(HOSTILE)] if k % 2 else f"part {c}"
                    parts.append((i, 100 * i, name, seed, part, random.normal()))
    keys = ["iteration", "env_steps", "candidate", "seed"]
    metrics = ["fitness", "shaped_return", "kl", "learning_rate", "entropy", "value_loss"]
    times = [0.02 * (i + 1) for i in range(100)]
    lines = {"fitness so far": [math.sin(t) for t in times], HOSTILE[0]: [math.cos(t) for t in times]}
    shown = [every[2], "human", "unshaped"]
    candidates = [
        PageCandidate(
            name, f"files/{name}.py", source, {"compiled": f"all but {HOSTILE[2]}"},
            None if k < 2 else ("human", "def compute_reward(state_dict):\n    return 0\n"),
            [REMARK] * (k >= 2),
        )
        for k, name in enumerate(every)
    ]  # fmt: skip
    ranked = rank(results, (0.0, 1.0))
    return RunPage(
        title=f"Cartpole: {len(names)} candidates {HOSTILE[0]}",
        fitness_meaning=f"a fraction {HOSTILE[2]}; 0 to 1",
        ranked=ranked,
        pairs=run_pairs(fitness_model(results, (0.0, 1.0)), ranked),
        candidates=candidates,
        facts=["2 seeds", HOSTILE[0]],
        curves=pd.DataFrame(curves, columns=[*keys, *metrics]),
        components=pd.DataFrame(parts, columns=[*keys, "component", "mean"]),
        step_fitness=pd.DataFrame(steps, columns=[*keys, "step", "seconds", "fitness", "active"]),
        videos=PageVideos([PageEpisode(name, mp4, "fitness 0.5", times, lines, 1.0) for name in shown], "a note"),
        how={"device": "a CPU", "torch": "2"},
        command="eval-shapers --task Cartpole",
    )
