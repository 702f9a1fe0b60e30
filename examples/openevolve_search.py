"""OpenEvolve improves a reward, scored by envcoder_bench.Evaluator: pip install openevolve envcoder-bench

python examples/openevolve_search.py     # with a model of your own in `search` below

Its worker processes ask the evaluator at a socket. Those that ask together are trained in one run.
"""

import sys
from pathlib import Path

from openevolve import run_evolution  # pyright: ignore[reportMissingImports]
from openevolve.config import Config  # pyright: ignore[reportMissingImports]

import envcoder_bench

SEED = "def compute_reward(pole_angle):\n    return torch.cos(pole_angle)\n"
EVALUATION = """
import sys
sys.path.insert(0, {folder!r})
from openevolve.evaluation_result import EvaluationResult
from program_score import score

def evaluate(path):
    fitness, feedback = score({address!r}, open(path).read())
    return EvaluationResult({{"combined_score": fitness}}, {{"feedback": feedback}})
"""


def search(task, model, iterations=36, workers=9, **settings):
    """Return the result of OpenEvolve, and the evaluator, which knows all scores.

    Args:
        model: an ``LLMModelConfig`` of OpenEvolve.
        iterations: number of programs.
        workers: number of programs that are written and evaluated together.
    """
    evaluator = envcoder_bench.Evaluator(task, **settings)
    evaluation = EVALUATION.format(folder=str(Path(__file__).resolve().parent), address=evaluator.listen())
    config = Config()
    config.llm.models = config.llm.evaluator_models = [model]
    config.evaluator.parallel_evaluations, config.evaluator.timeout = workers, 3600
    config.diff_based_evolution = False  # the model writes whole files
    return run_evolution(SEED, evaluation, config, iterations), evaluator


if __name__ == "__main__":
    sys.exit("call search() with an LLMModelConfig('your-model', api_base=..., api_key=...)")
