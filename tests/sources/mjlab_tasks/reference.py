"""mjlab's own ``ManagerBasedRlEnv`` with the random numbers that this project's adapter draws."""

import os
from contextlib import contextmanager
from unittest.mock import patch

import torch
from mjlab.envs import ManagerBasedRlEnv
from rows_stream import NamedFunc, RowsStream

from envcoder_bench.sources.mjlab_tasks.source import quiet
from envcoder_bench.sources.term_tasks.draws import drawing


class Reference:
    """mjlab's environment of a task; ``step`` returns its reward, observations, terminations and time-outs."""

    def __init__(self, cfg, num_envs, device="cpu"):
        cfg.scene.num_envs = num_envs
        cfg.seed = 42  # mjlab's default, which also generates the terrain
        self.seeds = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self.lanes = torch.arange(num_envs, device=device)
        self.at = -1
        startup = {name: e for name, e in cfg.events.items() if e is not None and e.mode == "startup"}
        for name, event in startup.items():
            event.func = NamedFunc(event.func, f"events/{name}", True)
        with patch.dict(os.environ), quiet(), self._stream("events/startup"):  # it sets a variable
            self.env = env = ManagerBasedRlEnv(cfg, device=device)
        terrain = env.scene.terrain
        if terrain is not None and terrain.terrain_origins is not None:
            with self._stream("terrain"):
                levels = torch.randint(0, terrain.cfg.max_init_terrain_level + 1, (num_envs,), device=device)
            terrain.terrain_levels.copy_(levels)
            terrain.env_origins.copy_(terrain.terrain_origins[levels, terrain.terrain_types])
        for name, term in zip(env.curriculum_manager.active_terms, getattr(env.curriculum_manager, "_term_cfgs", ())):
            term.func = NamedFunc(term.func, f"curriculum/{name}", True)
        events = env.event_manager
        for cfgs in events._mode_term_cfgs.values():
            for term in cfgs:
                if not isinstance(term.func, NamedFunc):
                    name = next(name for name, own in events.cfg.items() if own is term)
                    term.func = NamedFunc(term.func, f"events/{name}", True)
        for group, terms in env.observation_manager._group_obs_term_names.items():
            for name, term in zip(terms, env.observation_manager._group_obs_term_cfgs[group]):
                term.func = NamedFunc(term.func, f"observations/{group}/{name}", False)
        self._wrap(events, "apply", lambda mode="", **k: f"events/{mode}")
        self._wrap(events, "reset", lambda *a, **k: "events/timers", ids=True)
        for name, term in getattr(env.command_manager, "_terms", {}).items():
            self._wrap(term, "reset", lambda *a, name=name, **k: f"commands/{name}/reset", ids=True)
            self._wrap(term, "compute", lambda *a, name=name, **k: f"commands/{name}")
        self._wrap(env.curriculum_manager, "compute", lambda *a, **k: "curriculum")
        self._wrap(env.observation_manager, "compute", lambda *a, **k: "observations")
        # mjlab's sensors keep the data of before ``forward`` unless any environment was reset
        sense = env.sim.sense

        def fresh():
            sense()
            for sensor in env.scene.sensors.values():
                sensor._invalidate_cache()

        env.sim.sense = fresh
        self.resets = 0

    @contextmanager
    def _stream(self, name):
        with RowsStream(name, self.seeds, self.lanes, self.at) as own, drawing():
            yield own

    def _wrap(self, owner, method, name_of, ids=False):
        original = getattr(owner, method)

        def wrapped(*args, **kwargs):
            mode = kwargs.get("mode")
            before, self.at = self.at, self.at if mode in ("interval", "step") or self.at < 0 else self.begins
            with self._stream(name_of(*args, **kwargs)) as own:
                if ids:
                    own.rows = args[0] if args else kwargs["env_ids"]
                result = original(*args, **kwargs)
            self.at = before
            return result

        setattr(owner, method, wrapped)

    def reset(self):
        self.at = self.begins = 0
        with quiet():
            return self.env.reset()[0]

    def step(self, action, at):
        self.at, self.begins = at, at + 1
        with quiet():
            obs, reward, terminated, time_outs, _ = self.env.step(action)
        self.resets += int((terminated | time_outs).sum())
        return obs, reward.clone(), terminated.clone(), time_outs.clone()
