"""ShinkaEvolve improves a reward, scored by envcoder_bench.Evaluator. Its packages have an environment of their own.

    python -c "import envcoder_bench, time; print(envcoder_bench.Evaluator('Cartpole').listen()); time.sleep(1e6)"
    python examples/shinka_search.py ADDRESS MODEL     # with the address above: pip install shinka-evolve

Each program is evaluated by a process, which asks the evaluator at its socket. Those that ask together are one run:
ShinkaEvolve lets a third to a half as many ask as the machine has cores.
"""

import sys
from pathlib import Path

from shinka.core import EvolutionConfig, ShinkaEvolveRunner  # pyright: ignore[reportMissingImports]
from shinka.database import DatabaseConfig  # pyright: ignore[reportMissingImports]
from shinka.launch import LocalJobConfig  # pyright: ignore[reportMissingImports]

SEED = """# EVOLVE-BLOCK-START
def compute_reward(pole_angle):
    return torch.cos(pole_angle)
# EVOLVE-BLOCK-END
"""
EVALUATION = """
import argparse, json, pathlib, sys
sys.path.insert(0, {folder!r})
from program_score import score

parser = argparse.ArgumentParser()
parser.add_argument("--program_path", type=pathlib.Path)
parser.add_argument("--results_dir", type=pathlib.Path)
args = parser.parse_args()
fitness, feedback = score({address!r}, args.program_path.read_text())
args.results_dir.mkdir(parents=True, exist_ok=True)
metrics = {{"combined_score": fitness, "public": {{}}, "private": {{}}, "text_feedback": feedback}}
(args.results_dir / "metrics.json").write_text(json.dumps(metrics))
(args.results_dir / "correct.json").write_text(json.dumps({{"correct": True, "error": None}}))
"""


def search(address, model, programs=40, workers=10, folder="shinka"):
    """Let ShinkaEvolve write and score programs; its results are in the folder.

    Args:
        address: of the evaluator.
        model: a name of ShinkaEvolve's models, such as ``local/NAME@http://localhost:8000/v1``.
        workers: number of programs that are written and evaluated together.
    """
    home = Path(folder).absolute()
    home.mkdir(parents=True, exist_ok=True)
    (home / "initial.py").write_text(SEED)
    here = str(Path(__file__).resolve().parent)
    (home / "evaluate.py").write_text(EVALUATION.format(folder=here, address=address))
    evolution = EvolutionConfig(
        num_generations=programs,
        llm_models=[model],
        embedding_model=None,
        meta_rec_interval=None,
        proposal_target_mode="fixed",
        patch_types=["full"],
        patch_type_probs=[1.0],
        use_text_feedback=True,
        init_program_path=str(home / "initial.py"),
        results_dir=str(home / "results"),
    )
    ShinkaEvolveRunner(
        evolution,
        LocalJobConfig(eval_program_path=str(home / "evaluate.py")),
        DatabaseConfig(db_path=str(home / "programs.sqlite")),
        max_evaluation_jobs=workers,
        max_proposal_jobs=workers,
    ).run()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("give the address of the evaluator and a model")
    search(sys.argv[1], sys.argv[2])
