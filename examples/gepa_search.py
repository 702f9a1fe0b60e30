"""GEPA improves a reward, with the feedback of envcoder_bench.Evaluator: pip install gepa envcoder-bench

python examples/gepa_search.py     # with a model of your own in `model` below
"""

import sys

from gepa.api import optimize
from gepa.core.adapter import EvaluationBatch, GEPAAdapter

import envcoder_bench

SEED = "def compute_reward(pole_angle):\n    return torch.cos(pole_angle)\n"


class Shaping(GEPAAdapter):
    """The text ``file`` of a GEPA candidate is a candidate file; the only example is the task."""

    propose_new_texts = None  # GEPA asks its model

    def __init__(self, evaluator):
        self.evaluator = evaluator

    def evaluate(self, batch, candidate, capture_traces=False):
        score, feedback = self.evaluator.evaluate(candidate["file"])
        return EvaluationBatch([feedback] * len(batch), [score] * len(batch), [feedback] * len(batch))

    def make_reflective_dataset(self, candidate, eval_batch, components_to_update):
        rows = [{"Inputs": "the task", "Generated Outputs": "a policy", "Feedback": x} for x in eval_batch.outputs]
        return {name: rows for name in components_to_update}


def search(task, model, calls=20, **settings):
    """Return the best file that GEPA finds.

    Args:
        model: returns a reply to a prompt; the last block of code in it is the new file.
        calls: number of evaluations.
    """
    evaluator = envcoder_bench.Evaluator(task, gather=0.1, **settings)
    result = optimize(
        {"file": SEED},
        trainset=[task],
        valset=[task],
        adapter=Shaping(evaluator),
        reflection_lm=model,
        max_metric_calls=calls,
        reflection_minibatch_size=1,
        skip_perfect_score=False,
    )
    best = result.best_candidate
    return best["file"] if isinstance(best, dict) else best, result.val_aggregate_scores


if __name__ == "__main__":
    sys.exit("call search() with a function that asks your model")
