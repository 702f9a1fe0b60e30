"""With mjlab itself: tasks that track a motion, and how they sample it."""

import copy
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from driven import Driven, actions

from envcoder_bench.sources.mjlab_tasks import source
from envcoder_bench.sources.registry import find_spec
from envcoder_bench.sources.term_tasks.faults import PatchError

pytest.importorskip("mjlab")
pytestmark = pytest.mark.slow  # constructing a scene takes a second


@dataclass
class Rsi:
    sampling_mode: str


@pytest.fixture(scope="module")
def swings(tmp_path_factory):
    """Registers tracking of a motion file, with each way to begin episodes."""
    from mjlab.tasks.registry import load_env_cfg, load_rl_cfg, register_mjlab_task

    frames, joints, bodies = 40, 29, 30
    angles = 0.2 * np.sin(np.linspace(0.0, 6.0, frames))[:, None].repeat(joints, 1)
    fields = {"pos_w": (0.0, 0.0, 0.78), "quat_w": (1.0, 0.0, 0.0, 0.0), "lin_vel_w": (0, 0, 0), "ang_vel_w": (0, 0, 0)}
    arrays = {f"body_{name}": np.broadcast_to(x, (frames, bodies, len(x))) for name, x in fields.items()}
    path = tmp_path_factory.mktemp("motion") / "swing.npz"
    np.savez(path, joint_pos=angles, joint_vel=np.gradient(angles, 0.02, axis=0), **arrays)
    for mode in ("uniform", "adaptive"):
        cfg = load_env_cfg("Mjlab-Tracking-Flat-Unitree-G1")
        cfg.commands["motion"].motion_file, cfg.commands["motion"].sampling_mode = str(path), mode
        register_mjlab_task(f"Swing-{mode}", cfg, cfg, load_rl_cfg("Mjlab-Tracking-Flat-Unitree-G1"))

    # a package's command may have a config of its own for that, and not read the one of its base class
    for name, mode in (("inside", "adaptive"), ("inherited", "uniform")):
        inside = copy.deepcopy(cfg)
        inside.commands["motion"].rsi = Rsi(mode)
        register_mjlab_task(f"Swing-{name}", inside, inside, load_rl_cfg("Mjlab-Tracking-Flat-Unitree-G1"))


def test_tracking_of_a_motion_that_wraps_around_is_isolated(swings):
    size = 16  # torch's functions round the last rows of other numbers of rows in another way
    driven = Driven("Swing-uniform", size, 3, patches=[{}, {"events": {"push_robot": None}}, {}], limit=9)
    for k, action in enumerate(actions(size, driven.task.num_dofs, 14)):
        results = driven.step(action)
        for key, x in driven.of_group(results, 2).items():
            assert torch.equal(x, driven.of_group(results, 0)[key]), (k, key)
    frames = driven.task.blocks[0].command_manager.get_term("motion").time_steps
    assert 0 <= int(frames.min()) < int(frames.max()) < 40


@pytest.mark.parametrize(
    "task, message",
    [
        ("mjlab:Mjlab-Cartpole-Balanc", "did you mean Mjlab-Cartpole-Balance"),
        ("mjlab:mjlab-cartpole-balance", r"did you mean Mjlab-Cartpole-Balance\?"),
        ("mjlab:Mjlab-Lift-Cube-Yam-Rgb", "camera sensor 'camera_d405'"),
        ("mjlab:Mjlab-Tracking-Flat-Unitree-G1", "the command 'motion' has no motion file"),
        ("mjlab:Swing-adaptive", r"\(sampling_mode\): .*register the task with sampling_mode 'uniform'"),
        ("mjlab:Swing-inside", r"the command 'motion' samples .* \(rsi.sampling_mode\): .* sampling_mode 'uniform'"),
        ("mjlab:no_such_package:Task", "no_such_package cannot be imported"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(task, message, swings):
    with pytest.raises(ValueError, match=message):
        find_spec(task)


def test_an_inherited_way_to_sample_that_is_not_read_is_not_refused(swings):
    cfg = source.Source("mjlab:Swing-inherited", "Swing-inherited").env_cfg()
    assert cfg.commands["motion"].sampling_mode == "adaptive" and source.shared_by_groups(cfg) is None


def test_a_candidate_may_not_sample_by_the_failures_of_others(swings):
    sections = find_spec("mjlab:Swing-uniform").sections
    with pytest.raises(
        PatchError, match=r"commands\['motion'\] samples by the failures .* take sampling_mode 'uniform'"
    ):
        sections.complete({"commands": {"motion": {"sampling_mode": "adaptive"}}}, "")
