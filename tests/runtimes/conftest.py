"""Programs for the runtime's tests: MIL builder -> package on disk -> runtime."""

import contextlib
import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest

FP16_TARGET = "iOS18"


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch):
    """With ANE_SWEEP_TEST_DEVICE=cuda, what these tests load is on the GPU; with meta, on a pretended device."""
    device = os.environ.get("ANE_SWEEP_TEST_DEVICE")
    with contextlib.ExitStack() as stack:
        if device == "meta":
            from pretended import Made, Pretended, checked

            from ane_sweep.reference import cuda

            stack.enter_context(Pretended())
            stack.enter_context(Made())
            monkeypatch.setattr(cuda, "run_on_device", partial(checked, cuda.run_on_device))
        if device:
            from ane_sweep.reference import pipeline

            monkeypatch.setattr(pipeline, "load", partial(_elsewhere, pipeline.load, device))
        yield


def _elsewhere(load, device, /, *args, **how):
    return load(*args, **{**how, "device": device})


@pytest.fixture(scope="session")
def mil():
    """coremltools' MIL builder and types; seconds to import, so once a session."""
    import coremltools as ct
    from coremltools.converters.mil.mil import Builder, types

    class Mil:
        mb = Builder
        dtypes = {np.float16: types.fp16, np.float32: types.fp32, np.int32: types.int32, np.bool_: types.bool}

        @staticmethod
        def write(path: Path, inputs: dict, body, target: str = FP16_TARGET, flexible=None, states=None) -> Path:
            """Save `body(**inputs)` (one value, or a tuple) as a package, op by op as it was written.

            `flexible`: {name: ct shape} for inputs without one fixed shape; `states`: {name: shape}, fp16.
            """
            goal = getattr(ct.target, target)
            flexible, states = flexible or {}, states or {}
            kinds = {name: Mil.dtypes[value.dtype.type] for name, value in inputs.items()}
            specs = [
                Builder.TensorSpec(
                    Mil.symbolic(flexible[name], value.ndim) if name in flexible else value.shape, kinds[name]
                )
                for name, value in inputs.items()
            ]
            specs += [Builder.StateTensorSpec(shape, types.fp16) for shape in states.values()]
            names = [*inputs, *states]

            def named(*values):
                return body(*values)

            code = f"lambda {', '.join(names)}: named({', '.join(names)})"
            program = Builder.program(input_specs=specs, opset_version=goal)(eval(code, {"named": named}))
            model = ct.convert(
                program,
                convert_to="mlprogram",
                minimum_deployment_target=goal,
                compute_precision=ct.precision.FLOAT32,
                pass_pipeline=ct.PassPipeline.EMPTY,
                skip_model_load=True,
                inputs=[ct.TensorType(name=name, shape=shape) for name, shape in flexible.items()] or None,
            )
            model.save(str(path))
            return path

        @staticmethod
        def symbolic(shape, rank: int) -> list:
            from coremltools.converters.mil.mil import get_new_symbol

            sizes = shape.shapes if isinstance(shape, ct.EnumeratedShapes) else None
            if sizes is not None:
                shapes = [tuple(option.shape) for option in sizes]
                return [shapes[0][d] if len({s[d] for s in shapes}) == 1 else get_new_symbol() for d in range(rank)]
            return [get_new_symbol() if isinstance(size, ct.RangeDim) else size for size in shape]

    Mil.ct = ct
    return Mil


@pytest.fixture
def execute(mil, tmp_path):
    """execute(inputs, body, target=...) -> outputs of `body` by the reference runtime, in order."""
    from ane_sweep.worker.runtimes.reference import ReferenceRuntime

    count = 0

    def run(inputs: dict, body, target: str = FP16_TARGET, **how) -> list[np.ndarray]:
        nonlocal count
        count += 1
        runtime = ReferenceRuntime([mil.write(tmp_path / f"{count}.mlpackage", inputs, body, target, **how)])
        return list(runtime.predict(inputs).values())

    return run


@pytest.fixture(scope="session")
def everything(mil, tmp_path_factory):
    """A small program of many kinds: weights, compressed weights, control flow, a state, strings. Not to be changed."""
    rng = np.random.default_rng(3)

    def body(x, memory):
        mb = mil.mb
        small = mb.constexpr_blockwise_shift_scale(
            data=rng.integers(-8, 8, (64, 64)).astype(np.int8), scale=np.ones((64, 4), np.float16)
        )
        y = mb.linear(x=x, weight=small, bias=rng.standard_normal(64).astype(np.float16))
        y = mb.matmul(x=y, y=rng.standard_normal((64, 64)).astype(np.float16))
        y = mb.coreml_update_state(state=memory, value=mb.add(x=y, y=mb.read_state(input=memory)))
        parts = mb.split(x=mb.reshape(x=y, shape=[1, 4, 4, 4]), num_splits=2, axis=1)
        z = mb.concat(values=[mb.gelu(x=parts[0], mode="EXACT"), mb.softmax(x=parts[1], axis=-1)], axis=1)
        _, z = mb.while_loop(
            _cond=lambda i, z: mb.less(x=i, y=np.int32(3)),
            _body=lambda i, z: (mb.add(x=i, y=np.int32(1)), mb.mul(x=z, y=np.float16(0.5))),
            loop_vars=(np.int32(0), z),
        )
        z = mb.cond(
            pred=mb.greater(x=mb.reduce_max(x=z), y=np.float16(0)),
            _true_fn=lambda: mb.mul(x=z, y=np.float16(-np.inf)),
            _false_fn=lambda: z,
        )
        return mb.gather(x=z, indices=np.int32([1, 0]), axis=2), mb.topk(x=z, k=2, axis=3)[0]

    path = tmp_path_factory.mktemp("everything") / "m.mlpackage"
    return mil.write(path, {"x": np.zeros((1, 64), np.float16)}, body, states={"memory": (1, 64)})
