"""Every function of mjlab that randomizes models: what a group draws does not depend on other groups."""

import inspect
from dataclasses import replace

import pytest
import torch
from driven import CARTPOLE, Driven, actions

pytest.importorskip("mjlab")
pytestmark = pytest.mark.slow

# by parameter of a function
VALUES = {
    **dict.fromkeys(["ranges", "kp_range", "kd_range", "effort_limit_range"], (0.8, 1.2)),
    **dict.fromkeys(["roll_range", "pitch_range", "yaw_range", "bias_range", "s12_range"], (-0.1, 0.1)),
    **dict.fromkeys(["alpha_range", "d_range", "t_range"], (-0.05, 0.05)),
    "operation": "scale",
}
MORE = """<site name="tip" pos="0 0 0.5"/></body></body></worldbody>
<tendon><fixed name="link" stiffness="1" damping="0.1" frictionloss="0.1" armature="0.1">
<joint joint="slider" coef="1"/><joint joint="hinge_1" coef="0.3"/></fixed></tendon>
<contact><pair name="touch" geom1="cart" geom2="rail1"/></contact>"""


def _functions():
    from mjlab.envs.mdp import dr

    return {name: function for name, function in vars(dr).items() if inspect.isfunction(function)}


def _spec():
    import mujoco
    from mjlab.tasks.cartpole import cartpole_env_cfg

    text = cartpole_env_cfg._CARTPOLE_XML.read_text()
    start, end = text.rindex("</body>\n    </body>"), text.index("</worldbody>") + len("</worldbody>")
    text = text[:start] + MORE + text[end:]
    lines = [*text[: text.index("<actuator>")].splitlines(), "</mujoco>"]
    return mujoco.MjSpec.from_string("\n".join(line for line in lines if "floor" not in line))  # a plane has no size


@pytest.fixture(scope="module")
def randomized():
    """Registers a pendulum on a cart with all functions at the start, and at each reset; the name."""
    from mjlab.actuator import IdealPdActuatorCfg
    from mjlab.managers.event_manager import EventTermCfg
    from mjlab.managers.scene_entity_config import SceneEntityCfg
    from mjlab.tasks.registry import load_env_cfg, load_rl_cfg, register_mjlab_task

    cfg, name = load_env_cfg(CARTPOLE), "Randomized-Cartpole"
    drive = IdealPdActuatorCfg(target_names_expr=("slider",), stiffness=3.0, damping=0.5, effort_limit=8.0)
    entity = cfg.scene.entities["cartpole"]
    articulation = replace(entity.articulation, actuators=(drive,))
    cfg.scene.entities["cartpole"] = replace(entity, spec_fn=_spec, articulation=articulation)
    for function_name, function in _functions().items():
        accepted = inspect.signature(function).parameters
        params = {key: value for key, value in VALUES.items() if key in accepted}
        for mode in ("startup", "reset"):
            own = {**params, "asset_cfg": SceneEntityCfg("cartpole")}
            cfg.events[f"{function_name} at {mode}"] = EventTermCfg(func=function, mode=mode, params=own)
    register_mjlab_task(name, cfg, cfg, load_rl_cfg(CARTPOLE))
    return name


def test_an_empty_candidate_is_human_with_every_function_that_randomizes(randomized):
    size = 3
    others = [
        {"events": {"body_mass at reset": None}},
        {"terminations": {"mine": lambda env: env.episode_length_buf == 3}},
    ]
    alone, among = Driven(randomized, size, limit=5), Driven(randomized, size, 4, patches=[{}, *others, {}], limit=5)
    fields = among.task.world.sim.expanded_fields
    for k, action in enumerate(actions(size, 1, 12)):
        expected, results = alone.step(action), among.step(action)
        for group in (0, 3):
            rows = slice(group * size, (group + 1) * size)
            for key, x in among.of_group(results, group).items():
                assert torch.equal(x, expected[key]), (k, group, key)
            for name in fields:
                x, own = (getattr(driven.task.world.sim.model, name) for driven in (among, alone))
                assert torch.equal(x[rows], own), (k, group, name)
            (x,), (own,) = (driven.task.world.scene["cartpole"].actuators for driven in (among, alone))
            assert torch.equal(x.stiffness[rows], own.stiffness) and torch.equal(x.force_limit[rows], own.force_limit)
    assert len(fields) > 30


def test_a_model_is_restored_in_float64(randomized):
    task = Driven(randomized, 3).task
    registered = {"events": {"tendon_damping at startup": {"params": {"ranges": (1.0, 1.0)}}}}
    task.patch([registered])
    task.attach(task._groups)
    sim = task.world.sim
    assert (sim.model.get_rows()["tendon_damping"] == sim.mj_model.tendon_damping).all()  # 0.1, not that of float32


def test_models_in_float64_are_part_of_the_saved_state(randomized):
    first, other = Driven(randomized, 3, limit=5), Driven(randomized, 3, limit=5)
    for action in actions(3, 1, 7):
        first.step(action)
    other.task.set_state(first.task.get_state())
    rows, own = (driven.task.world.sim.model.get_rows() for driven in (first, other))
    assert all((own[name] == x).all() for name, x in rows.items())
