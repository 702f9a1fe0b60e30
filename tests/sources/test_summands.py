"""The terms of a reward that one function adds up: their sum is the reward, where nothing replaces it."""

import importlib.util
import sys
import textwrap

import pytest
import torch

from envcoder_bench.sources.isaacgym_tasks.driver import RewardTerms
from envcoder_bench.sources.isaacgym_tasks.summands import find_summands

TASK = """
import torch


class Task:
    num_envs, device = 64, "cpu"

    def __init__(self):
        self.a, self.b = torch.randn(2, 64)
        self.rew_buf, self.reset_buf = torch.zeros(2, 64)

    def compute_reward(self):
        self.rew_buf[:], self.reset_buf[:] = reward_of(self.a, self.b, 2.0, self.rew_buf)


@torch.jit.script
def reward_of(a, b, b_scale: float, rew_buf):
    done = a > 1.0
    cost = b * b
{body}
    a += 1.0  # what a task does with its arguments later
    return {value}, done
"""


@pytest.fixture
def make(tmp_path, monkeypatch):
    def make(body, value="total", task=TASK):
        text = task.format(body=textwrap.indent(textwrap.dedent(body).strip(), "    "), value=value)
        path = tmp_path / "task_with_a_sum.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        assert path.stem not in sys.modules  # as tasks, whose modules are not kept there
        return module.Task()

    return make


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("total = a - (b_scale * cost - 1.0)", ("a", "cost", "constant")),
        ("total = torch.zeros_like(a)\ntotal += a\ntotal -= b_scale * b", ("a", "b")),
        ("total = a\ntotal = a * b + torch.exp(-cost)\ntotal = total + b", ("a", "cost", "b")),
        ("total = a + b\ntotal = torch.where(done, total + 3, total)", ("a", "b", "constant")),
        ("total = a - cost - b\ntotal = torch.where(b > 0, total - b, total)", ("a", "cost", "b", "b_2")),
        ("r1 = a * 2\ntotal = r1 - cost * r1", ("r1", "cost")),
        (
            "total = a - cost.mean()\nif b_scale > 1.0:\n    total = torch.where(done, total + b, total)",
            ("a", "cost", "b"),
        ),
        ("total = a - cost\nif b_scale > 5.0:\n    total = torch.where(done, total + b, total)", ("a", "cost", "b")),
        ("r1 = a * 2\ntotal = r1 - r1 * r1", ("r1", "r1_2")),
        ("x, x_2 = a * 2, b * 2\ntotal = x + x * x + x_2 + x * b", ("x", "x_2", "x_2_2", "x_3")),
        ("x = 2 * a\ntotal = x\ntotal += b", ("x", "b")),
    ],
)
def test_terms_add_up_to_the_reward(make, body, names):
    task = make(body)
    terms = RewardTerms(task)
    a = task.a.clone()
    with terms.noted():
        task.compute_reward()
    assert tuple(task.reward_terms) == names and terms.scaled
    torch.testing.assert_close(sum(task.reward_terms.values()), task.rew_buf)
    assert torch.equal(task.a, a + 1.0)  # the task's own function ran once
    task.compute_reward()  # and is in its place again
    assert find_summands(task) is not None and torch.equal(task.a, a + 1.0 + 1.0)


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        ("total = a + cost\ntotal = torch.clip(total, 0.0, 100.0)", lambda x, done: x.clamp(min=0.0)),
        ("total = a + cost\ntotal = torch.where(done, torch.ones_like(total) * -2.0, total)",
         lambda x, done: torch.where(done, -2.0, x)),
    ],
)  # fmt: skip
def test_bounds_and_prices_stay_the_rewards(make, body, changed):
    task = make(body, value="total.detach()")
    done = task.a > 1.0
    with RewardTerms(task).noted():
        task.compute_reward()
    torch.testing.assert_close(changed(sum(task.reward_terms.values()), done), task.rew_buf)


@pytest.mark.parametrize(
    "body",
    [
        "total = a * b", "total = (a + b) * b_scale", "total = torch.where(done, a + b, a)",  # one term
        "total = a + b\ntotal = total * 0.1", "total = a + b\ntotal *= 0.1", "total = a + b\ntotal[0] = 1.0",
        "total = a + b\ntotal.mul_(0.1)", "total = a + b\nif b_scale > 1.0:\n    total = a - b",  # not their sum
        "total = a + b\ntotal = torch.where(done, total * 2.0, total)",
        "total = a + torch.randn_like(b)",  # other numbers in a second call
    ],
)  # fmt: skip
def test_other_rewards_have_no_terms(make, body):
    task = make(body)
    assert find_summands(task) is None and not hasattr(task, "reward_terms")


def test_a_reward_that_the_task_changes_afterwards_has_no_terms(make):
    lines = "rew_buf)\n        self.rew_buf[:] = self.rew_buf * 0.5"
    assert find_summands(make("total = a + b", task=TASK.replace("rew_buf)\n", f"{lines}\n", 1))) is None


def test_a_function_that_may_change_an_object_is_not_called_twice(make):
    text = TASK.replace("@torch.jit.script", "").replace("b_scale: float", "self").replace("2.0, ", "self, ")
    task = make("self.calls = self.__dict__.get('calls', 0) + 1\ntotal = a + b", task=text)
    terms = RewardTerms(task)
    terms.on_trial = True
    with terms.noted():
        task.compute_reward()
    assert task.calls == 1 and not hasattr(task, "reward_terms")


def test_decorators_of_the_tasks_methods_do_not_hide_its_file(make):
    text = TASK.replace("    def __init__", "    @torch.no_grad()\n    def __init__")
    assert find_summands(make("total = a + b", task=text)).names == ("a", "b")


def test_a_sum_that_only_torchscript_computes_has_no_terms(make):
    task = make("assert torch.jit.is_scripting()\ntotal = a + b")
    total = task.a + task.b
    terms = RewardTerms(task)
    terms.on_trial = True
    with terms.noted():
        task.compute_reward()
    assert torch.equal(task.rew_buf, total) and not hasattr(task, "reward_terms")


def test_terms_on_trial_fit_where_they_add_up_to_the_reward(make):
    for after, fits in (("", True), ("\n        self.halve()", False)):
        text = TASK.replace("rew_buf)\n", f"rew_buf){after}\n", 1)
        text = text.replace(
            "    def compute_reward", "    def halve(self):\n        self.rew_buf.mul_(0.5)\n\n    def compute_reward"
        )
        terms = RewardTerms(task := make("total = a + b", task=text))
        terms.on_trial = True
        with terms.noted():
            task.compute_reward()
        assert terms.fit == fits


def test_the_sum_of_one_of_several_critics_is_not_the_reward(make):
    text = TASK.replace("self.rew_buf[:],", "self.rew_buf[:, 1],")
    task = make("total = a + b", task=text)
    task.rew_buf = torch.zeros(64, 2)
    terms = RewardTerms(task)
    terms.on_trial = True
    with terms.noted():
        task.compute_reward()
    assert not terms.fit
