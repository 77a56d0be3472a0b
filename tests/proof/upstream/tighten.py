"""What is changed in coremltools' test helpers, so that a passing item proves something.

Off macOS the helpers return before they predict; the platform is what they ask. Their tolerance for fp16 is 100 times
the test's own, at least atol 0.5 and rtol 0.05, under which a wrong `scatter` passes: both are divided by 50. The helper
of the graph-pass tests converts to the old neural-network format by default: it gets ML Programs instead.

One thing is made looser: items labelled fp32 whose program declares fp16 values all the same (tests that choose the type
of their inputs) are held to the tightened fp16 tolerance. Apple runs no such item: fp32 is off unless asked for.
"""

import builtins
import copy
import functools
import inspect
import platform
import sys
from typing import Any

TIGHTER = 50
MACOS_VERSION = (15, 4)
_FLOORS = (5e-1, 5e-2)
loosened: list[str] = []  # grows whenever an item labelled fp32 is held to the fp16 tolerance
_FLOAT16 = 10  # DataType.FLOAT16 of MIL.proto


def pretend_apple_silicon() -> None:
    """`platform.machine()` decides which torch frontends and state tests exist. sys.platform stays: Python needs it."""
    platform.machine = lambda: "arm64"


def pretend_macos() -> None:
    """Overwrite the copies of these names in every loaded module of coremltools; test modules import them later."""
    answers: dict[str, Any] = {"_IS_MACOS": True, "_is_macos": lambda: True, "_macos_version": lambda: MACOS_VERSION}
    for name, module in list(sys.modules.items()):
        if module is not None and name.startswith("coremltools"):
            for key in answers.keys() & vars(module).keys():
                setattr(module, key, answers[key])


def tolerances(module: Any) -> None:
    """Shadow `max` in a helper module: of (100 * asked, floor) it makes the 50th part, else it is the builtin."""

    def tighter(*values: Any, **options: Any) -> Any:
        largest = builtins.max(*values, **options)
        return largest / TIGHTER if len(values) == 2 and values[1] in _FLOORS else largest

    module.max = tighter


def ml_programs_by_default(module: Any, precision: str) -> None:
    """Make `assert_model_is_valid` convert to ("mlprogram", precision) where its caller names no backend.

    It is given a copy then: converting to fp16 puts casts into the program itself, which the caller goes on to look at.
    """
    inner = module.assert_model_is_valid
    signature = inspect.signature(inner)

    @functools.wraps(inner)
    def assert_model_is_valid(*values: Any, **options: Any) -> Any:
        bound = signature.bind(*values, **options)
        if "backend" not in bound.arguments:
            bound.arguments["backend"] = ("mlprogram", precision)
            bound.arguments["program"] = copy.deepcopy(bound.arguments["program"])
        return inner(*bound.args, **bound.kwargs)

    module.assert_model_is_valid = assert_model_is_valid


def judge_by_declared_type(module: Any) -> None:
    """Make `compare_backend` take "fp16" for a model whose program computes in fp16, whatever the item is labelled."""
    inner = module.compare_backend
    signature = inspect.signature(inner)

    @functools.wraps(inner)
    def compare_backend(*values: Any, **options: Any) -> Any:
        bound = signature.bind(*values, **options)
        if bound.arguments.get("dtype", "fp32") == "fp32" and holds_fp16(bound.arguments["mlmodel"].get_spec()):
            bound.arguments["dtype"] = "fp16"
            loosened.append("fp16")
        return inner(*bound.args, **bound.kwargs)

    module.compare_backend = compare_backend


def holds_fp16(spec: Any) -> bool:
    """Whether an ML Program takes fp16 values, or any of its ops makes some or computes with some."""
    if spec.WhichOneof("Type") != "mlProgram":
        return False
    return any(
        any(value.type.tensorType.dataType == _FLOAT16 for value in function.inputs)
        or any(_makes_fp16(block) for block in function.block_specializations.values())
        for function in spec.mlProgram.functions.values()
    )


def _makes_fp16(block: Any) -> bool:
    """Whether an op of a block makes fp16 values, or computes with an fp16 constant (a test's choice of weights)."""
    halves = {
        value.name for op in block.operations for value in op.outputs if value.type.tensorType.dataType == _FLOAT16
    }
    return any(
        any(_makes_fp16(inner) for inner in op.blocks)
        or (op.type != "const" and not halves.isdisjoint(value.name for value in op.outputs))
        or (not op.type.startswith("const") and not halves.isdisjoint(_reads(op)))
        for op in block.operations
    )


def _reads(op: Any) -> set[str]:
    return {binding.name for argument in op.inputs.values() for binding in argument.arguments}


def apply(precision: str) -> None:
    """All of it. Imports coremltools, and its helper for torch tests where that can be imported."""
    import coremltools  # noqa: F401
    from coremltools.converters.mil import testing_utils

    pretend_macos()
    tolerances(testing_utils)
    judge_by_declared_type(testing_utils)
    ml_programs_by_default(testing_utils, precision)
    try:
        from coremltools.converters.mil.frontend.torch.test import testing_utils as torch_utils
    except ImportError:
        return
    tolerances(torch_utils)
    pretend_macos()
