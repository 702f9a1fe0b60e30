"""What a run's files say about its final evaluation."""

from types import SimpleNamespace

from envcoder_bench.run.folder.ranked import final_evaluation
from envcoder_bench.run.folder.run_folder import RunFolder

EPISODES = """iteration,env_steps,candidate,seed,fitness
0,0,untrained,0,0.1 0.2
2,64,a,0,0.3 0.4
4,128,a,0,0.5 0.6
"""


def test_the_untrained_policy_belongs_to_the_final_evaluation(tmp_path):
    folder = RunFolder(tmp_path)
    assert final_evaluation(folder, SimpleNamespace(learning_iterations=4)) is None
    folder.episodes.write_text(EPISODES)
    final = final_evaluation(folder, SimpleNamespace(learning_iterations=4))
    assert final == {("untrained", 0): (0.1, 0.2), ("a", 0): (0.5, 0.6)}
    assert final_evaluation(folder, SimpleNamespace(learning_iterations=6)) is None


def test_a_damaged_record_costs_only_the_intervals(tmp_path, caplog):
    folder = RunFolder(tmp_path)
    folder.episodes.write_text(EPISODES.replace("0.6", "much"))
    assert final_evaluation(folder, SimpleNamespace(learning_iterations=4)) is None
    assert "episodes.csv cannot be read, so that intervals leave out" in caplog.text
