"""The functions of a candidate's dicts are those that the files of the baselines have as text."""

import inspect

import pytest
import torch

pytest.importorskip("mjlab")


@pytest.mark.parametrize("widths", [{"actor": 3, "critic": 2}, {"actor": 4}])
def test_functions_of_dicts_are_those_of_the_baselines_files(widths):
    from envcoder_bench.sources.term_tasks.sections import functions_of, functions_text

    names, module = ["upright", 'the "odd" one'], {}
    exec(functions_text(names, widths, lambda name: False), module)
    functions = functions_of(names, widths)
    assert set(functions) == {name for name in module if name.startswith("compute_")}
    state = {key: torch.rand(5, 4) for key in ("reward_buf", "reward_terms", "obs_buf", "critic_buf", "reset_buf")}
    for name, function in functions.items():
        parameters = inspect.signature(function).parameters
        assert list(parameters) == list(inspect.signature(module[name]).parameters)
        values = [function(*map(state.__getitem__, parameters)), module[name](*map(state.__getitem__, parameters))]
        if name == "compute_reward":
            (total, terms), (same_total, same_terms) = values
            assert torch.equal(total, same_total) and list(terms) == list(same_terms) == names
            assert all(torch.equal(terms[key], same_terms[key]) for key in names)
        else:
            assert torch.equal(*values)
