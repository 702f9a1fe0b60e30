"""What functions write into their inputs, however they do it, reaches neither the state nor another group."""

import math
import warnings

import pytest
import torch
from shaping_fakes import NARROW, PLAIN, Groups, same
from test_dispatch import CHANGED, FUNCTIONS, later

from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.env.input_copies import GroupCopies, no_changes
from envcoder_bench.env.stages import device_copies

CUDA = pytest.param(
    "cuda:0",
    marks=[pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")],
)
# ways to write the numbers ``v`` into the tensor ``x`` of the state, of which torch's version counter knows nothing
ON_CPU = {
    "numpy": "x.numpy()[:] = v.numpy()",
    "asarray": "import numpy as np; np.asarray(x)[:] = v.numpy()",
    "interface": (
        "import numpy as np; a = type('A', (), {'__array_interface__': x.numpy().__array_interface__})(); "
        "np.asarray(a)[:] = v.numpy()"
    ),
    "memory": "import ctypes; v = v.contiguous(); ctypes.memmove(x.data_ptr(), v.data_ptr(), 4 * v.numel())",
}
ANYWHERE = {
    "data": "x.data.copy_(v)",
    "strided": "x.data.as_strided(x.shape, x.stride(), x.storage_offset()).copy_(v)",
    "storage": (
        "torch.empty(0, device=x.device).set_(x.untyped_storage(), x.storage_offset(), x.shape, x.stride()).copy_(v)"
    ),
    "dlpack": "torch.utils.dlpack.from_dlpack(x.detach()).copy_(v)",
    "replaced": "x.data = v.contiguous()",
    "nan": "x.data.view(torch.int32).copy_(torch.full_like(x, float('nan')).view(torch.int32))",
}
SPELLINGS = {**ON_CPU, **ANYWHERE}


def attack(spelling, key="dof_vel", value="x + 1.0"):
    return f"x = state_dict['{key}']; v = {value}; {SPELLINGS[spelling]}"


# functions of every kind, on a small task


# every spelling and every kind of function
PAIRS = [(spelling, list(FUNCTIONS)[k % len(FUNCTIONS)]) for k, spelling in enumerate(SPELLINGS)]


@pytest.mark.parametrize("spelling, name", PAIRS)
def test_hidden_write_stops_its_own_group_alone(spelling, name):
    groups, clean = Groups([NARROW, later(name, attack(spelling)), PLAIN], n=4), Groups([NARROW, PLAIN], n=4)
    for t in range(6):
        made, expected = groups.step(t), clean.step(t)
        assert same(groups.of(made, 0), clean.of(expected, 0)) and same(groups.of(made, 2), clean.of(expected, 1))
        assert groups.dispatch.alive == [True, t < 3, True]
    assert groups.dispatch.failures[1].message == f"{CHANGED} (environment step 3)"
    assert groups.dispatch.failures[1].function == name


@pytest.mark.parametrize("key", ["root_states", "commands", "progress_buf", "actions", "dof_vel_scale", "feet_indices"])
def test_every_input_is_compared(key):
    code = later("compute_observation", f"state_dict['{key}'].data.add_(1)")
    groups, honest = Groups([code, PLAIN], n=4), Groups([later("compute_observation", "pass"), PLAIN], n=4)
    for t in range(4):
        made, expected = groups.step(t), honest.step(t)
        assert same({**made, "observation": 0 * made["dof_pos"]}, {**expected, "observation": 0 * made["dof_pos"]})
    assert f"changed '{key}' in place" in groups.dispatch.failures[0].message
    assert "in place" not in str(groups.task.constants) and groups.task.constants["feet_indices"].tolist() == [1, 3]


def test_hidden_write_into_the_action_is_found():
    code = "ACTION_DIM = 3\ndef compute_torque(action, progress_buf):\n"
    code += "    if progress_buf[0] > 1:\n        action.data.zero_()\n    return action * 1.0\n"
    groups = Groups([code, PLAIN], n=4)
    groups.run(4)
    assert "changed 'action' in place" in str(groups.dispatch.failures[0]) and groups.dispatch.alive[1]


def test_view_that_another_function_kept_is_compared():
    code = """
    kept = []
    def compute_observation(state_dict):
        kept.append(state_dict["commands"].data)
        return state_dict["dof_pos"] * 1.0
    def compute_reward(progress_buf):
        if progress_buf[0] > 3:
            kept[-1].fill_(7.0)
        return progress_buf * 1.0
    """
    groups, clean = Groups([code, PLAIN], n=4), Groups([PLAIN], n=4)
    for t in range(6):
        made = groups.step(t)
        assert same(groups.of(made, 1), clean.step(t))
        assert not (made["commands"] == 7.0).any()
    assert groups.dispatch.failures[0].function == "compute_reward"
    assert "changed 'commands' in place" in groups.dispatch.failures[0].message


def test_storage_of_an_input_does_not_reach_other_groups():
    everywhere = "x = state_dict['commands']; "
    everywhere += "torch.empty(0).set_(x.untyped_storage(), 0, (x.untyped_storage().nbytes() // 4,)).fill_(7.0)"
    groups = Groups([PLAIN, later("compute_observation", everywhere), NARROW], n=4)
    clean = Groups([PLAIN, NARROW], n=4)
    for t in range(6):
        made, expected = groups.step(t), clean.step(t)
        assert same(groups.of(made, 0), clean.of(expected, 0)) and same(groups.of(made, 2), clean.of(expected, 1))
        assert not (made["commands"] == 7.0).any()
    assert groups.dispatch.alive == [True, False, True]


def test_resized_storage_stops_its_own_group_alone():
    resized = later("compute_observation", "state_dict['commands'].untyped_storage().resize_(0)")
    groups, clean = Groups([resized, PLAIN], n=4), Groups([PLAIN], n=4)
    for t in range(6):
        assert same(groups.of(groups.step(t), 1), clean.step(t))
    assert groups.dispatch.alive == [False, True]


def test_result_with_methods_of_its_own_is_refused():
    code = """
    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            if function is torch.Tensor.copy_ and not isinstance(args[0], cls):
                args[0].untyped_storage().fill_(0)
            return super().__torch_function__(function, types, args, kwargs or {})
    def compute_reward(dof_pos, progress_buf):
        x = dof_pos.exp().sum(dim=-1)
        return x.as_subclass(Own) if progress_buf[0] > 2 else x
    """
    groups, clean = Groups([code, PLAIN], n=4), Groups([PLAIN], n=4)
    for t in range(4):
        assert same(groups.of(groups.step(t), 1), clean.step(t))
    assert "returned a Own; it must be a plain tensor: add .as_subclass(torch.Tensor)" in str(groups.dispatch.failures)


# the fitness of tasks


# copies on a device

GROUPS = 3


def copies_on(device, seed=0):
    """Return the copies of three groups, all of them as on a CUDA device, and their live tensors."""
    generator = torch.Generator().manual_seed(seed)
    whole = torch.randn(GROUPS * 5, 13, generator=generator).to(device)
    live = {
        "root": whole,
        "column": whole[:, 3],
        "narrow": whole[:, 2:6],
        "gaps": torch.randn(GROUPS * 5, 2, 8, generator=generator).to(device)[:, :, :3],
        "count": torch.arange(GROUPS * 5, device=device),
        "flag": torch.zeros(GROUPS * 5, dtype=torch.bool, device=device),
        "odd": torch.zeros(GROUPS * 5, 3, dtype=torch.uint8, device=device),
        "none": torch.zeros(GROUPS * 5, 0, device=device),
    }
    live["root"][4, 4] = math.nan
    constants = {"indices": torch.tensor([1, 3], device=device)}
    layout, actions = GroupLayout(GROUPS, 5), torch.randn(GROUPS * 5, 6, generator=generator).to(device)
    copies = []
    with pytest.MonkeyPatch.context() as patch:
        if device == "cpu":  # a tensor of a CPU takes the place of one on a CUDA device
            patch.setattr("envcoder_bench.env.input_copies.is_on_host", lambda x: False)
        for group, view in enumerate(layout.views(live)):
            copies.append(GroupCopies(group, view, actions[layout.slice(group), : 2 + group], constants))
    return copies, {**live, "action": actions}


def guard_of(copies, device):
    dead, step = torch.zeros(GROUPS, dtype=torch.bool, device=device), torch.zeros((), dtype=torch.int64, device=device)
    changes = no_changes(GROUPS, torch.device(device))
    return device_copies(copies, dead, step).guard([0, 1], changes), dead, step, changes


@pytest.mark.parametrize("device", ["cpu", CUDA])
def test_device_guard_refreshes_and_finds_the_group_and_the_key(device):
    copies, live = copies_on(device)
    guard, dead, step, changes = guard_of(copies, device)
    inputs = [own.inputs() for own in copies]

    def of(group, key):
        return inputs[group].action if key == "action" else inputs[group].state[key]

    for t in range(3):
        step.fill_((1 << 40) + t)
        for x in live.values():
            x.copy_(x * 2 if x.is_floating_point() else x ^ 1)
        guard.refresh()
        for group in (0, 1):
            for key, x in live.items():
                rows = x[group * 5 : group * 5 + 5]
                rows = rows[:, : 2 + group] if key == "action" else rows
                torch.testing.assert_close(of(group, key), rows, rtol=0, atol=0, equal_nan=True)
            assert of(group, "indices").tolist() == [1, 3]
        assert not torch.equal(of(2, "column"), live["column"][10:])  # whose guard is another one
        guard.compare()
        assert not dead.any()
    for k, key in enumerate([*(key for key in live if key != "none"), "indices"]):
        group = k % 2
        dead.zero_()
        changes.step.fill_(-1)
        changes.key.fill_(-1)
        guard.refresh()
        changed = of(group, key)
        changed.view(-1)[-1] = 1 - changed.view(-1)[-1].to(torch.int64)
        guard.compare()
        assert dead.tolist() == [group == 0, group == 1, False], key
        assert copies[group].names[int(changes.key[group])] == key
        assert changes.step.tolist() == [int(step) if g == group else -1 for g in range(GROUPS)]
        step.add_(1)
        guard.compare()
        assert int(changes.step[group]) == int(step) - 1  # the first change of a group is kept


# on a CUDA device

on_cuda = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("spelling", [pytest.param(key, marks=on_cuda) for key in ANYWHERE if key != "replaced"])
@pytest.mark.parametrize("eagerly", [False, True])
def test_hidden_write_on_cuda_stops_its_own_group_alone(name, spelling, eagerly):
    # in a graph a function cannot ask for the step: it writes what differs from its fourth step on
    kept = "torch.where((state_dict['progress_buf'] > 3).unsqueeze(1), x + 1.0, x)"
    code = later(name, "pass").replace("calls = 0\n", "").replace("    global calls\n    calls += 1\n", "")
    code = code.replace("    if calls > 3 + 1:\n        pass\n", "")
    write = f"x = state_dict['dof_vel']; v = {kept if spelling != 'nan' else 'x'}; "
    write += SPELLINGS[spelling].replace("torch.full_like(x, float('nan'))", kept.replace("x + 1.0", "math.nan"))
    code = code.replace("    result =", f"    {write}\n" + "    float(x[0, 0])\n" * eagerly + "    result =")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        groups = Groups([PLAIN, code, PLAIN], n=8, device="cuda:0")
        clean = Groups([PLAIN, PLAIN], n=8, device="cuda:0")
        for t in range(8):
            made, expected = groups.step(t), clean.step(t)
            for own, other in ((0, 0), (2, 1)):
                one, two = groups.of(made, own), clean.of(expected, other)
                assert all(torch.equal(one[key], two[key]) for key in one)
    groups.dispatch.poll()
    assert groups.dispatch.alive == [True, False, True]
    error = groups.dispatch.failures[1]
    step = 4 if name in ("compute_torque", "compute_dof_target") else 3
    assert error.message == f"{CHANGED} (environment step {step})" and error.function == name
    assert not groups.step(8)["observation"][8:16].any()


@pytest.mark.parametrize("count", [pytest.param(40, marks=on_cuda)])
def test_copies_on_cuda_do_not_change_results(count):
    codes = [NARROW, PLAIN] * count
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graphs = Groups(codes, n=64, device="cuda:0")
        eager = Groups(codes, n=64, device="cuda:0", deferred_faults=False)
        for t in range(6):
            one, two = graphs.step(t), eager.step(t)
            for key in one:
                torch.testing.assert_close(one[key], two[key], rtol=1e-5, atol=1e-6)
    graphs.dispatch.poll()
    assert graphs.dispatch.failures == {} == eager.dispatch.failures
