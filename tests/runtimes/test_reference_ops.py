"""Every op that coremltools can write is known, and keeps to the parameters it has there."""

import pytest

# builder-only: `const` is read by the plan itself, `_const_symbolic` exists for coremltools' own tests
NOT_BUILT = {"const", "_const_symbolic"}


@pytest.fixture(scope="module")
def registry(mil):
    from coremltools.converters.mil.mil.ops.registry import SSAOpRegistry

    return SSAOpRegistry


def test_every_core_op_is_known(registry):
    from ane_sweep.reference import plan

    assert len(registry.core_ops) == 168
    assert set(registry.core_ops) - set(plan.OPS) == NOT_BUILT


@pytest.mark.parametrize("target", ["iOS13", "iOS14", "iOS15", "iOS16", "iOS17", "iOS18", "iOS26"])
def test_every_op_of_every_opset_is_known(registry, target):
    import coremltools as ct

    from ane_sweep.reference import plan

    goal = getattr(ct.target, target)
    known = set()
    for name, versions in registry.core_ops.items():
        if any(int(version) <= int(goal) for version in versions):
            known.add(name)
    assert len(known) > 149 and not known - set(plan.OPS) - NOT_BUILT


def test_every_parameter_of_every_op_is_read(registry):
    """A parameter that no builder asks for is one that is silently ignored."""
    import inspect
    import re
    import sys

    from ane_sweep.reference import plan

    # our own: another test's, of a module that is gone, may stand beside them
    rooms = {sys.modules[one.__module__] for one in plan.OPS.values() if one.__module__.startswith("ane_sweep.")}
    text = "".join(inspect.getsource(module) for module in rooms)
    # why a parameter need not be read: it says what the declared types say, or allows what is always done
    settled = {
        "output_dtype": "the declared type",
        "output_indices_dtype": "the declared type",
        "indices_dtype": "the declared type",
        "dynamic_length": "lists grow as needed",
        "sort": "always sorted",
        "nbits": "the table has its size",
        "interpolation_mode": "",
        "_cond": "a block", "_body": "a block", "_true_fn": "a block", "_false_fn": "a block",
        "_existing_blocks": "builder only", "val": "const",
        "num_splits": "the number of outputs",
    }  # fmt: skip
    lacking = set()
    for name, versions in registry.core_ops.items():
        for version in versions.values():
            for parameter in version.input_spec.input_types:
                is_read = f'"{parameter}"' in text or re.search(rf"[ (*]{parameter}: ", text)  # a kernel's parameter
                if not is_read and parameter not in settled and name in plan.OPS:
                    lacking.add((name, parameter))
    allowed = {("lstm", p) for p in ("weight_ih_back", "weight_hh_back", "bias_back", "peephole", "peephole_back")}
    assert lacking <= allowed, "read by name with a suffix, or not at all"
