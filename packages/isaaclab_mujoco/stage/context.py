"""``SimulationContext`` and ``SimulationManager``: start the simulation and step it."""

import builtins
import enum
from typing import Any

from isaaclab_mujoco.errors import NotSupported
from isaaclab_mujoco.fakes import Fake, FakeMeta
from isaaclab_mujoco.stage import app
from isaaclab_mujoco.stage.prims import STAGE
from isaaclab_mujoco.tensors.physics import Physics


class SimulationContext:
    """Isaac Lab's context: the simulation is built of what was spawned, when it is reset for the first time."""

    _instance: "SimulationContext | None" = None

    class RenderMode(enum.IntEnum):
        NO_GUI_OR_RENDERING, NO_RENDERING, PARTIAL_RENDERING, FULL_RENDERING = -1, 0, 1, 2

    def __init__(self, cfg: Any = None) -> None:
        from isaaclab.sim import SimulationCfg  # pyright: ignore[reportMissingImports]

        self._meshes = _new_meshes()
        self.cfg = SimulationCfg() if cfg is None else cfg
        type(self)._instance = self
        self.cfg.device = self.device = app.usable(self.cfg.device)
        self.backend, self.stage, self.render_mode = "torch", STAGE, self.RenderMode.NO_GUI_OR_RENDERING
        self.app, self._app = app.App(), app.App()
        self.physics: Physics | None = None
        STAGE.add("/physicsScene", "PhysicsScene", scene=True)

    @classmethod
    def instance(cls) -> "SimulationContext | None":
        return cls._instance

    @classmethod
    def clear_instance(cls) -> None:
        cls._instance = None
        _new_meshes()
        STAGE.clear()
        app.subscribed.clear()

    @property
    def physics_sim_view(self) -> Any:
        return self.running.view

    @property
    def running(self) -> Physics:
        if self.physics is None:
            raise NotSupported("the simulation has not started: call reset() of the simulation context first")
        return self.physics

    def reset(self, soft: bool = False) -> None:
        """Build the simulation and tell assets and sensors that it runs."""
        if self.physics is not None:
            return
        self.physics = Physics(STAGE, self.cfg)
        for subscription in list(app.subscribed):
            subscription()
            error = getattr(builtins, "ISAACLAB_CALLBACK_EXCEPTION", None)
            if error is not None:
                builtins.ISAACLAB_CALLBACK_EXCEPTION = None  # type: ignore[attr-defined]
                raise error
        self._stage = dict(vars(STAGE))

    def activate(self) -> None:
        """Make this context the one that code of Isaac Lab asks for, where there are several in a process."""
        if type(self)._instance is not self:
            from isaaclab.sensors import RayCaster  # pyright: ignore[reportMissingImports]

            type(self)._instance = self
            RayCaster.meshes = self._meshes
            vars(STAGE).update(self._stage)

    def step(self, render: bool = True) -> None:
        self.running.step()

    def forward(self) -> None:
        self.running.forward()

    def get_initial_stage(self) -> Any:
        return STAGE

    def get_physics_dt(self) -> float:
        return self.cfg.dt

    def get_rendering_dt(self) -> float:
        return self.cfg.dt * self.cfg.render_interval

    @property
    def current_time(self) -> float:
        return self.running.steps * self.cfg.dt

    def is_playing(self) -> bool:
        return self.physics is not None

    def is_stopped(self) -> bool:
        return self.physics is None

    def has_gui(self) -> bool:
        return False

    has_rtx_sensors = is_fabric_enabled = has_omniverse_visualizer = has_gui

    def get_setting(self, name: str) -> Any:
        return app.Settings().get(name)

    def set_setting(self, name: str, value: Any) -> None:
        app.Settings().set(name, value)

    def render(self, *_: Any, **__: Any) -> None:
        """Do nothing: there are no pictures."""

    play = pause = stop = clear = clear_all_callbacks = set_camera_view = set_render_mode = render

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise NotSupported(f"SimulationContext.{name}: isaaclab_mujoco does not have this")


def _new_meshes() -> dict[str, Any]:
    """Return a new dict of meshes for ray casters.

    It is an attribute of their class, in which a second simulation would find the terrain of the first. An environment
    validates its config, with the class and its meshes in it, before it makes a simulation.
    """
    from isaaclab.sensors import RayCaster  # pyright: ignore[reportMissingImports]

    RayCaster.meshes = {}
    return RayCaster.meshes


class SimulationManager(metaclass=FakeMeta):
    """``isaacsim.core.simulation_manager.SimulationManager``."""

    dotted = "isaacsim.core.simulation_manager.SimulationManager"

    @staticmethod
    def get_physics_sim_view() -> Any:
        context = SimulationContext.instance()
        return None if context is None else context.physics_sim_view

    @staticmethod
    def get_backend() -> str:
        return "torch"

    @staticmethod
    def get_physics_sim_device() -> str:
        context = SimulationContext.instance()
        return "cpu" if context is None else context.device

    @staticmethod
    def register_callback(*_: Any, **__: Any) -> Any:
        return Fake()

    @staticmethod
    def deregister_callback(*_: Any, **__: Any) -> None:
        pass

    @staticmethod
    def assets_loading() -> bool:
        return False
