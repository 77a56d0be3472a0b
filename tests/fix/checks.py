"""The check that every rewrite's test makes, and small programs to make it on.

package = save(tmp_path / "m.mlpackage", lambda x: mb.softplus(x=x), x=("fp16", (1, 8)))
check_rewrite("softplus_shifted", package, places=1)
"""

import gc
from pathlib import Path

from ane_sweep.fix import driver, output, whole
from ane_sweep.fix.rewrite import REWRITES
from ane_sweep.mil import graph, package
from ane_sweep.placement import chips


def save(path: Path, body, target: str = "iOS18", **inputs) -> Path:
    """Write a package with the ops exactly as `body` writes them; inputs are name=(dtype, shape)."""
    import coremltools as ct
    from coremltools.converters.mil import Builder as mb
    from coremltools.converters.mil.mil import types

    gc.freeze()  # each conversion collects garbage, and would look through all that is imported
    goal = getattr(ct.target, target)
    specs = [mb.TensorSpec(shape, getattr(types, dtype)) for dtype, shape in inputs.values()]
    names = ", ".join(inputs)
    program = mb.program(input_specs=specs, opset_version=goal)(eval(f"lambda {names}: body({names})", {"body": body}))
    model = ct.convert(
        program, convert_to="mlprogram", minimum_deployment_target=goal, compute_precision=ct.precision.FLOAT32,
        pass_pipeline=ct.PassPipeline.EMPTY, skip_model_load=True,
    )  # fmt: skip
    model.save(str(path))
    return path


def apply_rewrite(one, name: str, scratch: Path):
    """Apply a rewrite wherever it matches, as the verb does in one trial, and leave out the judgement by the prediction.

    Return the rewritten package, the changes, and the places whose proof failed.
    """
    attempt = driver.RewriteAttempt(driver.Workpiece(one, chips.get("m4"), scratch), name)
    failed = attempt.apply()
    return attempt.package, attempt.changes, failed


def check_rewrite(name: str, path: Path, places: int | None = None) -> Path:
    """Apply a rewrite wherever it matches and check it: each place is proven in fp32 and fp16, and the whole program; the
    written package is one that this project and coremltools read, with the types that coremltools infers; a second time
    nothing matches. Return the written package. `places`: how many it must change.
    """
    scratch = path.with_name(f"{path.stem}.{name}.scratch")
    scratch.mkdir()
    source = package.read(path)
    made, changes, failed = apply_rewrite(source, name, scratch)
    assert failed == {}, failed
    assert changes and all(change.proven for change in changes), changes
    assert places in (None, len(changes))
    one, function = REWRITES[name], graph.default_function(made.spec)
    assert whole.prove_whole(source, made, function, one.bound == 0.0, one.lost_db, one.mends_nan) is None
    target = path.with_name(f"{path.stem}.{name}.mlpackage")
    output.write_package(source, made, target)
    assert_legal(target)
    _, again, _ = apply_rewrite(package.read(target), name, scratch)
    assert again == []
    assert_same_interface(source.spec, package.read(target).spec)
    return target


def check_untouched(name: str, path: Path) -> None:
    """Check that a rewrite leaves a look-alike alone."""
    made, changes, failed = apply_rewrite(package.read(path), name, path.parent)
    assert changes == [] and failed == {}
    assert made.spec == package.read(path).spec


def assert_legal(path: Path) -> None:
    """Check that coremltools parses a package, and infers for every op the types that the package declares."""
    import coremltools as ct
    from coremltools.converters.mil.frontend.milproto.load import load
    from coremltools.converters.mil.mil import types

    source, spec = package.read(path), ct.utils.load_spec(str(path))
    weights = path / "Data" / "com.apple.CoreML" / "weights"
    loaded = load(spec, specification_version=spec.specificationVersion, file_weights_dir=str(weights))
    assert set(loaded.functions) == set(source.spec.mlProgram.functions)
    for function, found in loaded.functions.items():
        program = graph.view_program(source, function)
        declared = {name: program.tensor_type(name) for name in program.types}
        for op in found.operations:
            if op.op_type in ("const", "coreml_update_state"):  # the latter is write_state, which makes no value
                continue
            for value in op.outputs:
                kind = declared[value.name]
                assert kind is not None, value.name
                assert types.builtin_to_string(value.dtype) == kind.dtype, (op.op_type, value.name)
                inferred = tuple(size if isinstance(size, int) else None for size in value.shape)
                assert tuple(value.shape) == () or inferred == kind.shape, (
                    op.op_type,
                    value.name,
                    inferred,
                    kind.shape,
                )


def assert_same_interface(one, other) -> None:
    assert one.description == other.description
    for name, function in one.mlProgram.functions.items():
        fixed = other.mlProgram.functions[name]
        assert function.inputs == fixed.inputs
        blocks = [found.block_specializations[found.opset] for found in (function, fixed)]
        assert list(blocks[0].outputs) == list(blocks[1].outputs)
        types = [{v.name: v.type for op in block.operations for v in op.outputs} for block in blocks]
        assert all(types[0].get(out) == types[1].get(out) for out in blocks[0].outputs)


def count_ops(path: Path) -> dict[str, int]:
    """Return the number of ops of each type, constants left out."""
    found: dict[str, int] = {}
    for op in graph.load(path).ops:
        if op.type != "const":
            found[op.type] = found.get(op.type, 0) + 1
    return found
