"""A small framework of terms that is unlike mjlab: its configs are dicts, and its actor reads the group ``policy``.

Bodies are on a line. A task's config has a dict for each section; a group of observations has its terms and its
attributes side by side, as in Isaac Lab, and its managers have names of their own.
"""

from types import SimpleNamespace

import torch

from envcoder_bench.sources.term_tasks.block import Block, loaded
from envcoder_bench.sources.term_tasks.checkpoint import restore, saved
from envcoder_bench.sources.term_tasks.dialect import Dialect
from envcoder_bench.sources.term_tasks.draws import Draws
from envcoder_bench.sources.term_tasks.facts import TermFacts
from envcoder_bench.sources.term_tasks.graphs.parts import Parts
from envcoder_bench.sources.term_tasks.patches import block_keys, patched
from envcoder_bench.sources.term_tasks.views import ManagerView, View

DT, WIDTHS = 0.1, {"actor": 8, "critic": 8}


# a task's terms


def near(env, width=1.0):
    """How near the origin a body is."""
    return torch.exp(-(env.place().square()) / width)


def fast(env):
    return env.world.speed[env.rows].abs()


def far(env, limit=2.0):
    return env.place().abs() > limit


def old(env):
    return env.world.age[env.rows] >= 6


def place(env):
    return env.place().unsqueeze(1)


def noisy_speed(env):
    speed = env.world.speed[env.rows].unsqueeze(1)
    return speed + 0.1 * torch.randn_like(speed)


def goal(env):
    return env.commands["goal"].value


class Smooth:
    """A term that keeps something between steps."""

    def __init__(self, cfg, env):
        self.last = torch.zeros(env.num_envs)

    def __call__(self, env):
        change = (env.place() - self.last).abs()
        self.last = env.place().clone()
        return change

    def reset(self, env_ids):
        self.last[env_ids] = 0.0


def put_at_random(env, env_ids, reach=1.0):
    draws = torch.rand(len(env_ids))
    env.place()[env_ids] = reach * (2.0 * draws - 1.0)
    env.world.speed[env.rows][env_ids] = 0.0


def make_easier(env, env_ids, term, weight):
    env.reward_manager.get_term_cfg(term)["weight"] = weight


def make_easier_later(env, env_ids, term, weight):
    if env.world.steps > 3:
        make_easier(env, env_ids, term, weight)


def registered():
    return {
        "rewards": {
            "near": {"func": near, "params": {"width": 0.5}, "weight": 1.0},
            "fast": {"func": fast, "params": {}, "weight": -0.1},
            "smooth": {"func": Smooth, "params": {}, "weight": -0.2},
        },
        "terminations": {
            "far": {"func": far, "params": {}},
            "old": {"func": old, "params": {}, "time_out": True},
        },
        "observations": {
            "policy": {
                "scale": 1.0,
                "place": {"func": place, "params": {}},
                "speed": {"func": noisy_speed, "params": {}},
            },
            "critic": {"scale": 2.0, "place": {"func": place, "params": {}}, "goal": {"func": goal, "params": {}}},
        },
        "commands": {"goal": {"reach": 1.0, "seconds": 0.3}},
        "events": {"begin": {"func": put_at_random, "params": {}, "mode": "reset"}},
        "curriculum": {},
    }


# the framework's managers


class Events:
    def __init__(self, cfg, env):
        self.live = {name: dict(term) for name, term in cfg.items()}
        self.env = env
        self.available_modes = {term["mode"] for term in cfg.values()}

    def apply(self, mode, env_ids=None, **_):
        for term in self.live.values():
            if term["mode"] == mode:
                term["func"](self.env, env_ids, **term["params"])

    def reset(self, env_ids):
        pass


class Goal:
    def __init__(self, cfg, env):
        self.cfg, self.value = cfg, torch.zeros(env.num_envs, 1)
        self.num_envs = env.num_envs
        self.left, self.metrics = torch.zeros(env.num_envs), {"changes": torch.zeros(env.num_envs)}

    def reset(self, env_ids):
        self.left[env_ids] = 0.0

    def compute(self, dt):
        self.left -= dt
        new = self.left <= 0.0
        self.value.copy_(torch.where(new[:, None], self.cfg["reach"] * torch.rand_like(self.value), self.value))
        self.left.masked_fill_(new, self.cfg["seconds"])
        self.metrics["changes"] += new


class Commands(dict):
    """The commands by name."""

    def get_term(self, name):
        return self[name]


class Observations:
    def __init__(self, cfg, env):
        self.env = env
        self.groups = {
            name: {"scale": group["scale"], "terms": {key: dict(x) for key, x in group.items() if key != "scale"}}
            for name, group in cfg.items()
        }
        self.widths = {
            name: {key: term["func"](env, **term["params"]).shape[1] for key, term in group["terms"].items()}
            for name, group in self.groups.items()
            if group["terms"]
        }

    def compute(self, name):
        group = self.groups[name]
        return group["scale"] * torch.cat(
            [term["func"](self.env, **term["params"]) for term in group["terms"].values()], dim=1
        )

    def reset(self, env_ids):
        pass


class DictDialect(Dialect):
    """Configs are dicts; groups of observations have terms and attributes side by side."""

    name = "dictlab"
    terms_of_the_step = ("make_easier", "make_easier_later", "heavier", "in_step_3")

    def get(self, config, key, default=None):
        return config.get(key, default)

    def put(self, config, key, value):
        config[key] = value

    def keys(self, config):
        return list(config) if isinstance(config, dict) else []

    def values(self, config):
        return config

    def group_terms(self, group):
        return {name: term for name, term in group.items() if isinstance(term, dict)}

    def with_group_terms(self, group, terms):
        return {**{key: x for key, x in group.items() if not isinstance(x, dict)}, **terms}

    def is_term(self, section, value):
        return False  # a dict may be a part of one

    def new_term(self, section, values):
        return {"params": {}, **values}

    def kind(self, section):
        return f"dict of {section}"

    def resolve(self, value, scene):
        pass

    def reward_scale(self, cfg, step_dt):
        return step_dt

    def root_velocities(self, env, term):
        raise NotImplementedError

    def event_manager(self, cfg, env):
        return Events(cfg["events"], env)

    def command_manager(self, cfg, env):
        env.commands = Commands({name: Goal(term, env) for name, term in cfg["commands"].items()})
        return env.commands

    def observation_manager(self, cfg, env):
        return Observations(cfg["observations"], env)

    def curriculum_manager(self, cfg, env):
        funcs = {name: term["func"] for name, term in cfg["curriculum"].items()}
        return {
            name: {**term, "func": funcs[name](term, env) if isinstance(funcs[name], type) else funcs[name]}
            for name, term in cfg["curriculum"].items()
        }

    def metrics_manager(self, cfg, env):
        return SimpleNamespace(compute=lambda: None)

    def event_terms(self, manager):
        return manager.live.items()

    def command_terms(self, manager):
        return manager.items()

    def observation_terms(self, manager):
        return {name: group["terms"].items() for name, group in manager.groups.items()}

    def observation_dims(self, manager):
        return {name: (sum(widths.values()),) for name, widths in manager.widths.items()}

    def observation_widths(self, manager):
        return manager.widths

    def observe(self, manager, group):
        return manager.compute(group)

    def curriculum_terms(self, manager):
        return manager.items()

    def kept_terms(self, manager):
        return ()


class Env(View):
    """Some bodies, as terms see them."""

    def __init__(self, world, rows, cfg):
        self.world, self.rows, self.cfg = world, rows, cfg
        self.num_envs, self.device, self.step_dt = rows.stop - rows.start, "cpu", DT
        self.scene = world.scene

    @property
    def common_step_counter(self):
        return self.world.steps

    def place(self):
        return self.world.place[self.rows]


class Line:
    """Bodies on a line, and the ``World`` of their blocks."""

    def __init__(self, cfg, num_envs):
        self.dialect, self.cfg, self.device = DictDialect(), cfg, torch.device("cpu")
        self.place, self.speed = torch.zeros(num_envs), torch.zeros(num_envs)
        self.age = torch.zeros(num_envs, dtype=torch.int64)
        self.scene, self.sim = SimpleNamespace(sensors={}), self
        self.obs_sets = {"actor": ("policy",), "critic": ("critic",)}
        self.steps = self.reads = 0
        self.reads_rewards = self.has_read_rewards = False
        self.parts = Parts(None, self, [])

    @property
    def clock(self):
        return self.steps

    def view(self, rows, cfg):
        return Env(self, rows, cfg)

    def part(self, block, rows):
        first = block.rows.start
        env = Env(self, slice(first + rows.start, first + rows.stop), block.cfg)
        env.commands = {
            name: SimpleNamespace(value=term.value[rows])
            for name, term in vars(block).get("command_manager", {}).items()
        }
        if "termination_manager" in vars(block):
            env.termination_manager = ManagerView(block.termination_manager, rows)
        return env

    def held(self):
        return {"age": {"buf": self.age}}

    def get_simulation(self):
        return {"sim/place": self.place, "sim/speed": self.speed}

    def set_simulation(self, state):
        self.place.copy_(state["sim/place"])
        self.speed.copy_(state["sim/speed"])

    def count(self, steps):
        self.steps = steps

    def sense(self):
        pass

    sensed = forget = sense


class LineTask:
    """A task on a line, in steps as a task of the environment takes them.

    Args:
        patches: the dicts of each group, by section.
    """

    def __init__(self, size, patches=({},), cfg=None, seeds=None):
        self.size, groups = size, len(patches)
        self.world = Line(registered() if cfg is None else cfg, size * groups)
        seeds = [0] * groups if seeds is None else seeds
        self.seeds = torch.tensor(seeds).repeat_interleave(size)
        self.lanes = torch.arange(size).repeat(groups)
        self.faults, n = {}, size * groups
        self.buffers = {name: torch.zeros(n, width) for name, width in {**WIDTHS, "terms": 16}.items()}
        self.buffers.update(reward=torch.zeros(n), unstable=torch.zeros(n, dtype=torch.bool))
        self.load(patches)

    def load(self, patches):
        world, self.faults = self.world, {}
        configs = patched(world.dialect, world.cfg, patches, "policy")
        self.steps = 0

        def block(groups):
            rows = slice(groups.start * self.size, groups.stop * self.size)
            draws, own = Draws(self.seeds[rows], self.lanes[rows]), configs[groups.start : groups.stop]
            return Block(world, groups, self.size, own, draws, self._note, self.buffers)

        self.blocks = loaded(block_keys(world.dialect, configs), block)
        self._begin(torch.ones(len(self.seeds), dtype=torch.bool))

    def _note(self, groups, error):
        for group in groups:
            self.faults.setdefault(group, error)

    def _begin(self, mask):
        for block in self.blocks:
            block.draws.step = self.steps
            rows = block.rows
            begins = mask[rows].view(-1, self.size).any(dim=1).tolist()
            active = [group for group in block.active_groups() if begins[group]]
            block.attempt(block.curriculum, mask[rows], active)
            block.attempt(block.begin, mask[rows])
            block.attempt(block.command, mask[rows])
        self.world.age.masked_fill_(mask, 0)
        for block in self.blocks:
            block.observations.compute()

    def step(self, push):
        """Push the bodies of all groups by ``push`` ``(size,)``; return the results of the step."""
        world = self.world
        world.speed += 0.5 * push.repeat(len(world.speed) // self.size)
        world.place += world.speed * DT * 3.0
        world.age += 1
        self.steps += 1
        world.count(self.steps)
        ends = torch.zeros(len(world.age), dtype=torch.bool)
        for block in self.blocks:
            block.draws.step = self.steps
            block.end()
            block.judge()
            ends[block.rows] = block.termination_manager.dones
        results = {name: x.clone() for name, x in self.buffers.items() if name in ("reward", "terms")}
        self._begin(ends)
        results.update(ends=ends, **{name: self.buffers[name].clone() for name in WIDTHS})
        return results

    def try_step(self, patches=None):
        self.load([patches or {}])
        self.step(torch.zeros(self.size))

    def of_group(self, results, group):
        return {name: x[group * self.size : (group + 1) * self.size] for name, x in results.items()}

    def get_state(self):
        return {**saved(self.world, self.blocks, self.buffers), "steps": torch.tensor(self.steps)}

    def set_state(self, state):
        restore(self.world, self.blocks, self.buffers, state)
        self.steps = int(state["steps"])


class LineFacts(TermFacts):
    """What is known of the task on a line."""

    name = address = "line"

    def env_cfg(self):
        return registered()


def facts():
    widths = {**WIDTHS, "terms": 16}
    sets = {"actor": ("policy",), "critic": ("critic",)}
    own = LineTask(2).blocks[0].observations.widths()
    return LineFacts(dialect=DictDialect(), measure=None, train={}, obs_sets=sets, widths=widths, own_widths=own)
