"""With mjlab itself: what actions read and write, keys of the state, tracking, and a ranking."""

import copy

import pytest
import torch
from driven import CARTPOLE, GO1, Driven
from torch import Tensor

from envcoder_bench import evaluate
from envcoder_bench.core.errors import UserError
from envcoder_bench.run.config import compose_config
from envcoder_bench.sources.mjlab_tasks.spec import facts_of
from envcoder_bench.sources.registry import find_spec

pytest.importorskip("mjlab")
pytestmark = pytest.mark.slow  # constructing a scene takes a second


def test_actions_read_the_commands_of_all_candidates_and_a_candidates_code_its_part_of_an_action():
    driven = Driven(GO1, 2, 2, patches=[{}, {"events": {"push_robot": None}}])
    world, blocks = driven.task.world, driven.task.blocks
    twist = world.env.command_manager.get_term("twist")  # an action may keep it
    assert isinstance(twist, type(blocks[0].command_manager.get_term("twist")))  # actions check it
    whole, part = (env.action_manager.get_term("joint_pos") for env in (world.env, blocks[1].env))
    driven.actions.copy_(torch.rand(4, 12))
    driven.task.step(torch.empty(0))
    for k, block in enumerate(blocks):
        block.command_manager.get_term("twist").vel_command_b.fill_(float(k))
    for command in (twist.vel_command_b, world.env.command_manager.get_command("twist")):
        assert command.shape == (4, 3) and command[:, 0].tolist() == [0.0, 0.0, 1.0, 1.0]
    with pytest.raises(UserError, match="sets 'vel_command_b' of the command 'twist'"):
        twist.vel_command_b = command
    assert isinstance(part, type(whole)) and torch.equal(part.raw_action, whole.raw_action[2:])
    assert torch.equal(part._processed_actions, whole._processed_actions[2:]) and part.num_envs == 2
    assert part._entity.data.joint_pos.shape[0] == 2
    part._raw_actions = torch.full((2, 12), 7.0)
    assert whole.raw_action[2:].eq(7.0).all() and not whole.raw_action[:2].eq(7.0).any()


def test_what_an_action_writes_into_a_command_is_lost_also_alone():
    for groups, patches in ((1, [{}]), (2, [{}, {"events": {"push_robot": None}}])):
        driven = Driven(GO1, 2, groups, patches=patches)
        commands, own = driven.task.world.commands, driven.task.blocks[0].command_manager.get_command("twist")
        for command in (commands.get_command("twist"), commands.get_term("twist").vel_command_b):
            command.fill_(7.0)
            assert not own.eq(7.0).any()


def test_of_an_action_its_own_attributes_are_read_and_indices_of_as_many_joints_as_environments_are_whole():
    driven = Driven(GO1, 6, 2, patches=[{}, {"events": {"push_robot": None}}])
    world, block = driven.task.world, driven.task.blocks[1]
    whole, part = (env.action_manager.get_term("joint_pos") for env in (world.env, block.env))
    assert world.num_envs == 12 == len(whole._target_ids) and torch.equal(part._target_ids, whole._target_ids)
    world.env.action_manager._terms["joint_pos"] = own = copy.copy(whole)
    own.__class__ = type("Gain", (type(whole),), {"gain": 1.0, "other": 2.0})
    own.gain = 3.0
    part = block.env.action_manager.get_term("joint_pos")
    assert (part.gain, part.other) == (3.0, 2.0) and part.raw_action.shape == (6, 12)


def test_a_command_that_an_action_reads_while_it_is_constructed_is_named():
    from mjlab.tasks.velocity.mdp import UniformVelocityCommand

    from envcoder_bench.sources.term_tasks.views import Commands

    cfgs = facts_of(f"mjlab:{GO1}").source.env_cfg().commands
    commands = Commands(cfgs)
    twist = commands.get_term("twist")
    assert isinstance(twist, UniformVelocityCommand) and not isinstance(twist, type(cfgs["twist"]))
    for read in (lambda: commands.get_command("twist"), lambda: twist.vel_command_b):
        with pytest.raises(UserError, match=r"reads the command 'twist' .*: read it in process_actions"):
            read()


def test_keys_of_the_state_are_those_that_are_described():
    spec = find_spec(f"mjlab:{GO1}")
    task = Driven(GO1, 2).task
    task.refresh_state()
    for key, x in task.state.items():
        assert tuple(x.shape[1:]) == facts_of(spec.address).fields[key].shape, key
    data = task.world.scene["robot"].data
    assert torch.equal(task.state["robot.projected_gravity_b"], data.projected_gravity_b)
    assert torch.equal(task.state["command.twist"], task.blocks[0].command_manager.get_command("twist"))


def test_standing_still_on_a_command_of_zero_tracks_it():
    task = Driven(GO1, 2).task
    block = task.blocks[0]
    block.command_manager.get_command("twist").zero_()
    score: Tensor = task._fitness(block.env, task.state["reward_buf"])
    assert bool((score > 0.8).all()) and bool((score <= 1.0).all())


def test_from_the_registry_to_a_ranking(tmp_path):
    (tmp_path / "weight.py").write_text('rewards = {"smooth_reward": 2.0}\n')
    (tmp_path / "plain.py").write_text(
        "def compute_reward(state_dict):\n    return torch.cos(state_dict['cartpole.joint_pos'][:, 1])\n"
    )
    (tmp_path / "wrong.py").write_text('rewards = {"smooth": 2.0}\n')
    address = f"mjlab:{CARTPOLE}"
    with pytest.raises(UserError, match="unknown key"):
        compose_config(address, ["task.sim.bakend=warp"])
    cfg = compose_config(address)
    assert cfg.task_title == address != cfg.task.name
    assert cfg.params["config"]["horizon_length"] == 32 and cfg.params["network"]["mlp"]["units"] == [64, 64]
    settings = {"num_envs_per_candidate": 8, "learning_iterations": 2}
    few = ["evaluation.num_envs=2", "evaluation.points=1", "evaluation.final_episodes=2"]
    result = evaluate(address, tmp_path, output_dir=tmp_path / "run", overrides=few, **settings)
    rows = {row.candidate: row for row in result.rows}
    assert rows["wrong"].error and "rewards has no term 'smooth'" in rows["wrong"].error
    assert all(0.0 <= rows[name].fitness <= 1.0 for name in ("weight", "plain", "human", "unshaped"))
