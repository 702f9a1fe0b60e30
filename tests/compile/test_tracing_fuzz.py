"""Random functions of operators, views and writes in place, as kernels and as torch computes them.

``python tests/compile/test_tracing_fuzz.py FIRST COUNT`` looks for faults among as many other functions as wanted.
"""

import random
import sys
from typing import NamedTuple

import pytest
import torch
from tracing_fakes import Compiled, eager, function, make_state, record

from envcoder_bench.compile.program import Program

pytestmark = pytest.mark.slow

COUNT, STATEMENTS = 240, 14
WIDTHS = {"x": 4, "y": 4, "pos": 4, "unit": 4, "v": 3, "w": 3, "s": 0, "z": 0}
WHOLES = {"k": 4, "j": 4, "i": 0}
BOOLS = {"b": 4, "c": 0}
SMOOTH = (
    "torch.sin({})", "torch.tanh({})", "torch.sigmoid({})", "torch.exp(-{}.abs())", "torch.atan({})",
    "torch.log1p({}.abs())", "torch.sqrt({}.abs() + 0.1)", "torch.softmax({}, dim=-1)", "F.elu({})",
    "F.normalize({} + 0.01, dim=-1)", "torch.cos({}) ** 2", "({}).clamp(0.1, 2.0) ** 1.3", "F.softplus({})",
)  # fmt: skip
EXACT = (
    "-{}", "{}.abs()", "{}.clamp(-1.0, 1.0)", "{} * 0.5", "{} + 1.0", "1.0 - {}", "torch.relu({})",
    "{}.clamp(min=0.1)", "{}.flip(-1)", "{}.roll(1, dims=-1)", "torch.sign({})", "{}.floor()", "torch.round({})",
    "{}.double().float()",
)  # fmt: skip
PAIRS = (
    "{} + {}", "{} - {}", "torch.tanh({}) * {}", "torch.maximum({}, {})", "torch.minimum({}, {})",
    "torch.min({}, {})",
)  # fmt: skip
WHOLE = (
    "{} % 3", "{} // 2", "-{}", "{} * 2 + 1", "{} & 3", "{} ^ 1", "{}.abs()", "{} % -4", "{}.clamp(-2, 3)",
    "{} // -3",
)  # fmt: skip
REDUCE = ("{}.sum(dim=-1)", "{}.mean(dim=-1)", "{}.norm(dim=-1)", "{}.prod(dim=-1)", "torch.logsumexp({}, dim=-1)")
EXTREMES = ("{}.amax(dim=-1)", "{}.min(dim=-1).values", "{}[..., 0]", "{}[:, -1]", "{}.median(dim=-1).values")
COMPARE = ("{} > {}", "{} <= {}", "{} == {}", "{} != {}", "{} >= {}")


class Variable(NamedTuple):
    """``kind``: float, whole or bool; ``width``: 0 for ``(n,)``; ``exact``: to the last bit."""

    name: str
    kind: str
    width: int
    exact: bool


class Writer:
    """Writes one function; what is computed with roundings that may differ decides nothing."""

    def __init__(self, seed: int) -> None:
        self.rng, self.lines = random.Random(seed), []  # type: ignore[var-annotated]
        groups = (("float", WIDTHS), ("whole", WHOLES), ("bool", BOOLS))
        self.known: list[Variable] = [
            Variable(x, kind, width, True) for kind, own in groups for x, width in own.items()
        ]
        self.made: list[Variable] = []

    def pick(self, kind: str, **wanted: object) -> Variable:
        own = [x for x in self.known if x.kind == kind and all(getattr(x, key) == v for key, v in wanted.items())]
        late = [x for x in own if x in self.made]
        return self.rng.choice(late if late and self.rng.random() < 0.7 else own)

    def put(self, text: str, kind: str, width: int, exact: bool) -> Variable:
        made = Variable(f"t{len(self.made)}", kind, width, exact)
        self.lines.append(f"{made.name} = {text}")
        self.known.append(made)
        self.made.append(made)
        return made

    def wide(self, **wanted: object) -> Variable:
        return self.pick("float", width=self.rng.choice((4, 4, 3)), **wanted)

    def statement(self) -> None:
        rng = self.rng
        kind = rng.choice(("smooth", "exact", "pair", "reduce", "extreme", "compare", "where", "whole", "join", "cut",
                           "write", "write", "write", "logic", "cast", "pick", "spread"))  # fmt: skip
        if kind == "smooth":
            a = self.wide()
            self.put(rng.choice(SMOOTH).format(a.name), "float", a.width, False)
        elif kind == "exact":
            a = self.wide()
            text = rng.choice(EXACT)
            if a.exact or not any(word in text for word in ("sign", "floor", "round")):
                self.put(text.format(a.name), "float", a.width, a.exact)
        elif kind == "pair":
            a = self.wide()
            b, text = self.pick("float", width=a.width), rng.choice(PAIRS)
            self.put(text.format(a.name, b.name), "float", a.width, a.exact and b.exact and "tanh" not in text)
        elif kind == "reduce":
            a = self.wide()
            self.put(rng.choice(REDUCE).format(a.name), "float", 0, False)
        elif kind == "extreme":
            a = self.wide()
            self.put(rng.choice(EXTREMES).format(a.name), "float", 0, a.exact)
        elif kind == "compare":
            a = self.pick("float", exact=True)
            b = self.pick("float", exact=True, width=a.width)
            if a.width != 3:
                self.put(rng.choice(COMPARE).format(a.name, b.name), "bool", a.width, True)
        elif kind == "where":
            a, m = self.pick("float", width=4), self.pick("bool")
            b, mask = self.pick("float", width=4), m.name if m.width else f"{m.name}.unsqueeze(-1)"
            other = rng.choice((b.name, "0.25", "torch.zeros_like(x)"))
            self.put(f"torch.where({mask}, {a.name}, {other})", "float", 4, a.exact and b.exact)
        elif kind == "whole":
            a = self.pick("whole")
            self.put(rng.choice(WHOLE).format(a.name), "whole", a.width, True)
        elif kind == "join":
            a, b = self.wide(), self.pick("float", width=0)
            joined = f"torch.cat(({a.name}[:, :2], {b.name}.unsqueeze(-1), {b.name}[:, None]), dim=-1)"
            self.put(rng.choice((joined, f"torch.stack(({b.name},) * 4, dim=1)")), "float", 4, a.exact and b.exact)
        elif kind == "cut":
            a = self.pick("float", width=4)
            self.put(f"{a.name}[:, {rng.choice((':3', '1:', '[0, 2, 3]', '[3, 3, 1]'))}]", "float", 3, a.exact)
        elif kind == "write":
            self.write()
        elif kind == "logic":
            a = self.pick("bool", width=4)
            b = self.pick("bool", width=4)
            self.put(f"{a.name} {rng.choice('&|^')} ~{b.name}", "bool", 4, True)
        elif kind == "cast":
            a = self.wide(exact=True)
            if a.width == 4:
                self.put(f"({a.name}.clamp(-50, 50) * 2).long()", "whole", 4, True)
            b = self.pick("whole", width=4)
            self.put(f"{b.name}.float() * 0.1", "float", 4, True)
        elif kind == "pick":
            a, b = self.pick("float", width=4), self.pick("whole", width=0)
            own = rng.choice(("{}.gather(1, ({} % 4).unsqueeze(1)).squeeze(1)", "{}[torch.arange(x.shape[0]), {} % 4]"))
            self.put(own.format(a.name, b.name), "float", 0, a.exact)
        else:
            a = self.pick("float", width=0)
            self.put(f"{a.name}.unsqueeze(1).expand(-1, 4)", "float", 4, a.exact)
            self.known.remove(self.made[-1])  # places that share their memory cannot be written to

    def write(self) -> None:
        """Change a copy in place, often through a view that is used on."""
        rng, a = self.rng, self.pick("float", width=4)
        b, c, m = self.pick("float", width=0), self.pick("float", width=4), self.pick("bool", width=4)
        exact = a.exact and b.exact and c.exact
        o = self.put(f"{a.name}.clone()", "float", 4, exact).name
        view = f"u{len(self.made)}"
        self.lines += rng.choice((
            [f"{o}[:, {rng.randrange(4)}] = {b.name}"],
            [f"{o}[{m.name}] = {rng.choice((-1.0, 0.5))}"],
            [f"{o}[:, 1:3] *= 0.5", f"{o}[:, 0] -= {b.name}"],
            [f"{view} = {o}[:, :2]", f"{view}.add_({b.name}.unsqueeze(1))", f"{o}[:, 1] = {view}[:, 0]"],
            [f"{view} = {o}.view(-1, 2, 2).transpose(1, 2)", f"{view}[:, 0] = {c.name}[:, 2:]", f"{view} += 0.25"],
            [f"{o}[:, [3, 1]] = {c.name}[:, :2]", f"{o}.clamp_(-2.0, 2.0)"],
            [f"{view} = {o}.unbind(1)[{rng.randrange(4)}]", f"{view}.mul_(2.0).sub_({b.name})"],
            [f"{o}[:, :2], {o}[:, 2:] = {c.name}[:, 2:], {c.name}[:, :2]"],
            [f"{o}.masked_fill_({m.name}, 0.125)", f"{o} += {c.name}"],
            [f"torch.minimum({o}, {c.name}, out={o})"],
        ))  # fmt: skip


def write_function(seed: int) -> str:
    """The body of a random function, of all of whose variables the kernel must give the numbers."""
    writer = Writer(seed)
    while len(writer.made) < STATEMENTS:
        writer.statement()
    return "\n".join([*writer.lines, f"return [{', '.join(x.name for x in writer.made)}]"])


def faults(first: int, count: int) -> list[str]:
    """What differs, of each function that a kernel computes otherwise than torch."""
    torch.set_num_threads(1)
    bodies = [write_function(first + i) for i in range(count)]
    made = [record(function(body), make_state(16, 1)) for body in bodies]
    found = [f"{own}\n{body}" for own, body in zip(made, bodies) if not isinstance(own, Program)]
    kept = [(own, body) for own, body in zip(made, bodies) if isinstance(own, Program)]
    for n, seed in ((1, 3), (23, 4)):
        state = make_state(n, seed)
        for (_, body), got in zip(kept, Compiled([own for own, _ in kept], n).run(state)):
            want = eager(function(body), state)
            near = (got.floats - want.floats).abs() <= 2e-5 + 2e-5 * want.floats.abs()
            same = near | (got.floats == want.floats) | (got.floats.isnan() & want.floats.isnan())
            if not bool(same.all()) or not torch.equal(got.wholes, want.wholes):
                found.append(f"n={n}, columns {(~same).any(dim=0).nonzero().flatten().tolist()}\n{body}")
    return found


@pytest.mark.parametrize("first", range(0, COUNT, 80))
def test_random_functions_compile_correctly(first):
    found = faults(first, 80)
    assert not found, "\n\n".join(found[:3])


if __name__ == "__main__":
    for text in faults(int(sys.argv[1]), int(sys.argv[2])):
        print(text, end="\n\n")
