"""The registry of the rules that record the operators of torch, and the reasons why some have none."""

from collections.abc import Callable, Sequence
from typing import Any

from envcoder_bench.compile.program import Escape, Value
from envcoder_bench.compile.values import Values

Result = Value | Sequence[Value | None]  # None: for a tensor that is not accessible
Arguments = dict[str, Any]
Rule = Callable[[Values, Arguments, Any], Result]  # (values, arguments by name, torch's result)
RULES: dict[str, Rule] = {}  # by the name of the ATen operator


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register the rule that records the operators of these names."""

    def register(function: Rule) -> Rule:
        for name in names:
            if name in RULES:
                raise ValueError(f"operator {name} has a rule already")
            RULES[name] = function
        return function

    return register


_GENERATOR = "draws from a library's generator"
_VALUES = "lets its control flow or shapes depend on numbers of the state (if, .item(), a mask as index)"
_GENERATORS = (
    "rand", "randn", "randint", "rand_like", "randn_like", "randint_like", "uniform", "normal", "bernoulli", "random",
    "randperm", "multinomial", "exponential", "native_dropout",
)  # fmt: skip
UNSUPPORTED = {
    **dict.fromkeys(_GENERATORS, _GENERATOR),
    **dict.fromkeys(("nonzero", "masked_select", "is_nonzero", "equal", "_is_all_true", "_is_any_true"), _VALUES),
}


@rule("_local_scalar_dense")
def _item(rec: Values, a: Arguments, result: Any) -> Result:
    if not rec.is_known(a["self"]):
        raise Escape(_VALUES)
    return []
