"""28 deliberately bad answers of a language model, and what it answered to the messages.

All are recorded, but for the answers to three messages that were others, or none, then: those do what the messages say.
"""

from pathlib import Path

import pytest

from envcoder_bench.jail import confine
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.prepare.run_files import baseline_sources
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.search.archive import Archive, Attempt
from envcoder_bench.search.folder import SearchFolder
from envcoder_bench.search.llm import LLMProposer
from envcoder_bench.search.prompt.prompts import Prompts, load_templates
from envcoder_bench.search.providers.budget import Budget
from envcoder_bench.search.providers.transcript import ReplayProvider, Transcript
from envcoder_bench.search.rounds import Checker, check_and_repair
from envcoder_bench.search.settings import SearchSettings

RECORDED = Path(__file__).with_name("bad_answers.jsonl")
COUNT = 28
AT_ONCE = ("r1_00", "r1_01", "r1_15", "r1_22", "r1_23")  # odd, but whole
TOLD = {  # what the messages must say, of those that a message mends
    "r1_02": "no compute_* function in the reply",
    "r1_03": "it defines calculate_reward: the name must be one of those asked for",
    "r1_04": "use the torch function",
    "r1_05": "the keys are dof_pos, dof_vel, cart_pos, cart_vel, pole_angle, pole_vel",
    "r1_06": "write dof_pos[:, 1], dof_vel[:, 1] in place of dof_pos[:, 1:2], dof_vel[:, 1:2]",
    "r1_07": "write torch.where(condition, a, b) in place of if",
    "r1_08": "picks single environments of the group",
    "r1_09": "name 'tolerance' is not defined; define it in this file",
    "r1_10": "the reward is the same in every state",
    "r1_11": "is the same as human",
    "r1_12": "the reply was cut off inside its code block",
    "r1_13": "reduce with dim=-1",
    "r1_14": " in line 6 is nan where pole_angle is ",
    "r1_16": "changed 'pole_angle' in place",
    "r1_17": "may depend on what an earlier call has kept",
    "r1_18": "compute_reward is a method of the class Reward",
    "r1_19": "instead: a plain function with the keys that it reads as parameters",
    "r1_20": "parameter 'reset_buf' is not a key of the state",
    "r1_21": "define it in this file, which must be whole",
    "r1_24": "returned shape (4, 1); it must be (4, 2)",
    "r1_25": "defines both compute_torque and compute_dof_target; keep one",
    "r1_26": "may not import os",
    "r1_27": "the observation is a tensor (4, k)",
}


@pytest.mark.slow
@pytest.mark.skipif(bool(confine.supported()), reason="no jail on this machine")
def test_bad_answers_are_mended_by_their_messages(tmp_path):
    run = ["sim=mujoco_cpu", "device=cpu", "untrusted=true", "num_envs_per_candidate=4"]
    spec = RunSpec.of(compose_config("CartpoleSwingup", run))
    provider, folder = ReplayProvider(RECORDED), SearchFolder(tmp_path / "search")
    prompts, record = Prompts(load_templates(), "system", 1, 60_000), Transcript(tmp_path / "transcript.jsonl", {})
    proposer = LLMProposer(provider, record, Budget(), prompts, SearchSettings())
    asked = []
    repair = proposer._repair
    proposer._repair = lambda *words: asked.append(repair(*words)) or asked[-1]  # the messages
    sources = baseline_sources(spec.task, spec.config.task)
    archive = Archive([], {source.name: Attempt(source.name, 0, source.source) for source in sources})
    proposals = proposer.propose(archive, 1, COUNT)
    round = check_and_repair(1, proposals, proposer, archive, Checker(folder, spec, archive), 1)
    assert not round.failed
    assert set(TOLD) == set(round.repaired)
    for name, words in TOLD.items():
        assert words in str(round.repaired[name]) and any(words in message for message in asked), name
    assert not any("eval-shapers" in message or "docs/" in message for message in asked)
    assert {p.name for p in round.ready} >= {*TOLD, *AT_ONCE}
