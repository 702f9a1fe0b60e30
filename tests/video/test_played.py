"""What a policy's episode is worth while it is recorded."""

import torch

from envcoder_bench.run.folder.run_folder import CandidateSource
from envcoder_bench.run.inputs import resolve
from envcoder_bench.run.prepare.environments import build_env
from envcoder_bench.run.prepare.groups import prepare_one
from envcoder_bench.video.record import Player, _play

ENDS = "def compute_terminal(progress_buf):\n    return progress_buf >= 5\n"
TALL = "def compute_reward(pole_angle):\n    return 3.0 * torch.ones_like(pole_angle)\n"


def test_the_step_that_ends_an_episode_has_a_reward_and_no_fitness():
    spec = resolve("Cartpole", ["sim=mujoco_cpu", "device=cpu", "compile_shapers=false"])
    sources = [CandidateSource("ends", "ends.py", ENDS + TALL), CandidateSource("goes_on", "goes_on.py", TALL)]
    env = build_env(spec, [prepare_one(spec, source, 0).shaping for source in sources], [0, 0], 1)
    players = [Player(source.name, 0, lambda obs: torch.zeros(1, 1)) for source in sources]
    ended, other = _play(env, players, 9).episodes
    assert (ended.ended, ended.fitness.tolist()) == ("terminated", [1.0] * 4 + [0.0])  # upright to the end
    assert (other.ended, other.fitness.tolist()) == ("", [1.0] * 9)
    assert ended.reward.tolist() == [3.0] * 5 and len(ended.qpos) == 6
