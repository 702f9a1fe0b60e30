"""Isaac Lab's own ``ManagerBasedRLEnv`` with the random numbers that this project's adapter draws."""

from contextlib import contextmanager

import torch
from isaaclab.envs import ManagerBasedRLEnv
from isaaclab.managers import EventManager
from isaaclab.sim import SimulationContext
from rows_stream import NamedFunc, RowsStream

from envcoder_bench.core.stream import seeded
from envcoder_bench.sources.isaaclab_tasks.direct import without_startup
from envcoder_bench.sources.isaaclab_tasks.draws import SharedDraws
from envcoder_bench.sources.isaaclab_tasks.world import SEED
from envcoder_bench.sources.term_tasks.draws import drawing
from envcoder_bench.sources.term_tasks.quiet import quiet


class Reference:
    """Isaac Lab's environment of a config; ``step`` returns its results by name."""

    def __init__(self, cfg, num_envs):
        cfg.scene.num_envs, cfg.scene.env_spacing, cfg.seed = num_envs, 0.0, None
        self.seeds, self.lanes = torch.zeros(num_envs, dtype=torch.int64), torch.arange(num_envs)
        self.at = -1
        SimulationContext.clear_instance()
        # some events add to what they find, so that they must not be applied twice
        with seeded(SEED), quiet(), without_startup():
            self.env = env = ManagerBasedRLEnv(cfg)
            SimulationContext.instance()._stage = {}
        # in Isaac Lab a manager of events draws before and after the simulation starts
        with SharedDraws("events"), drawing():
            env.event_manager = events = EventManager(cfg.events, env)
        for names, cfgs in zip(events._mode_term_names.values(), events._mode_term_cfgs.values()):
            for name, term in zip(names, cfgs):
                term.func = NamedFunc(term.func, f"events/{name}", True)
        for name, term in zip(env.curriculum_manager.active_terms, env.curriculum_manager._term_cfgs):
            term.func = NamedFunc(term.func, f"curriculum/{name}", True)
        for group, terms in env.observation_manager.active_terms.items():
            for name, term in zip(terms, env.observation_manager._group_obs_term_cfgs[group]):
                term.func = NamedFunc(term.func, f"observations/{group}/{name}", False)
        if "startup" in events.available_modes:
            with self._stream("events/startup"):
                events.apply(mode="startup")
        self._wrap(events, "apply", lambda *a, **k: f"events/{k['mode']}")
        self._wrap(events, "reset", lambda *a, **k: "events/timers", ids=True)
        for name, term in env.command_manager._terms.items():
            self._wrap(term, "reset", lambda *a, name=name, **k: f"commands/{name}/reset", ids=True)
            self._wrap(term, "compute", lambda *a, name=name, **k: f"commands/{name}")
        self._wrap(env.observation_manager, "compute", lambda *a, **k: "observations")
        self._wrap(env.observation_manager, "reset", lambda *a, **k: "observations/reset", ids=True)
        self._wrap(env.scene, "reset", lambda *a, **k: "scene/reset", ids=True)
        self.resets = 0

    @contextmanager
    def _stream(self, name):
        with RowsStream(name, self.seeds, self.lanes, self.at) as own, drawing():
            yield own

    def _wrap(self, owner, method, name_of, ids=False):
        original = getattr(owner, method)

        def wrapped(*args, **kwargs):
            with self._stream(name_of(*args, **kwargs)) as own:
                if ids:
                    own.rows = args[0] if args else kwargs["env_ids"]
                return original(*args, **kwargs)

        setattr(owner, method, wrapped)

    def reset(self):
        """Begin all episodes as in a step."""
        env, self.at = self.env, 0
        with quiet():
            env._reset_idx(torch.arange(env.num_envs))
            env.command_manager.compute(dt=env.step_dt)
            if "interval" in env.event_manager.available_modes:
                env.event_manager.apply(mode="interval", dt=env.step_dt)
            env.observation_manager.compute(update_history=True)

    def step(self, action, at, every_step=False):
        """Take an action; ``every_step``: a curriculum is evaluated also in steps in which no episode begins."""
        self.at = at + 1  # the numbers of resets, commands and observations
        with quiet():
            obs, reward, terminated, time_outs, _ = self.env.step(action)
        if every_step:
            self.env.curriculum_manager.compute(env_ids=torch.zeros(0, dtype=torch.int64))
        self.resets += int((terminated | time_outs).sum())
        terms = self.env.reward_manager._step_reward
        return {"reward": reward, "terms": terms, "terminated": terminated, "time_outs": time_outs, **obs}
