"""Random programs through every rewrite of the room: none is changed beyond its bound, types stay legal, the interface is
kept, and nothing matches twice. ANE_SWEEP_PROGRAMS=100-5000 chooses other numbers.
"""

import os
import random
from collections import Counter

import numpy as np
import pytest
from fix.checks import apply_rewrite, assert_legal, assert_same_interface
from fix.random_programs import write_program

pytest.importorskip("coremltools")

from ane_sweep.fix import output
from ane_sweep.fix.rewrite import REWRITES
from ane_sweep.mil import package
from ane_sweep.reference.regions import run_ops

CLOSE = 1e-3  # of the largest output: bounds of several places, and what later ops make of them
REFUSALS = ("the Neural Engine's error", "fp16 loses accuracy", "a NaN is lost")  # no fault of a rewrite
LATER = (845, 1197, 1691)  # a place matches only when another one has been changed
ELSEWHERE = {  # no program is drawn with what these look for; each has property tests of its own in this folder
    "nan_sentinels", "integers_to_fp16", "band_to_mask", "patch_conv", "patch_conv3d", "scatter_to_mask", "masked_fill", "split_outputs",
}  # fmt: skip
FAST, ALL = [*range(25), *LATER], range(25, 5100)


def run(one, mode, values):
    function = one.spec.mlProgram.functions["main"]
    block = function.block_specializations[function.opset]
    inputs = {value.name: value.type for value in function.inputs}
    return run_ops(one, function.opset, block.operations, list(block.outputs), inputs, values, mode)


def draw_inputs(one, number):
    from ane_sweep.mil.element_types import NUMPY, tensor_type

    random_numbers, made = np.random.default_rng(number), {}
    for value in one.spec.mlProgram.functions["main"].inputs:
        kind = tensor_type(value.type)
        made[value.name] = random_numbers.standard_normal(kind.shape).astype(NUMPY[kind.dtype])
    return made


def assert_close(before, after, most, place):
    for name, one in before.items():
        a, b = one.astype(np.float64), after[name].astype(np.float64)
        assert a.shape == b.shape and one.dtype == after[name].dtype, (place, name)
        if most == 0.0:
            assert np.array_equal(a, b, equal_nan=True), (place, name)
            continue
        finite = np.isfinite(a)
        assert np.array_equal(a[~finite], b[~finite], equal_nan=True), (place, name)
        gap = np.abs(a - b)[finite].max(initial=0.0)
        assert gap <= most * max(1.0, np.abs(a[finite]).max(initial=0.0)), (place, name, gap)


def check_program(number, folder, met: Counter):
    """Send a program through all rewrites in a drawn order, each on what the one before made."""
    path = write_program(number, folder)
    scratch = folder / f"{number}.scratch"
    scratch.mkdir()
    source = one = package.read(path)
    values = draw_inputs(source, number)
    exact = run(source, "fp32", values)
    names = random.Random(number).sample(list(REWRITES), len(REWRITES))
    applied: list[str] = []
    for name in names:
        made, changes, failed = apply_rewrite(one, name, scratch)
        faults = {place: text for place, text in failed.items() if not any(known in text for known in REFUSALS)}
        assert not faults, (name, applied, faults)
        if not changes:
            continue
        met[name] += len(changes)
        applied.append(name)
        one = made
        made = run(one, "fp32", values)
        if REWRITES[name].mends_nan:  # later ops may make any number of a NaN: only its places are proven
            exact = made
        largest = max(REWRITES[each].bound for each in applied)  # of a place: later ops may enlarge what it leaves
        assert_close(exact, made, max(CLOSE, 10 * largest) if largest else 0.0, (name, applied))
        if not REWRITES[name].then:  # with others it may turn back what they turned: the prediction ends that
            _, again, _ = apply_rewrite(one, name, scratch)
            assert again == [], (name, applied, again)
    if applied:
        target = folder / f"{number}.out.mlpackage"
        output.write_package(source, one, target)
        assert_legal(target)
        assert_same_interface(source.spec, package.read(target).spec)


def check_numbers(numbers, tmp_path):
    met: Counter = Counter()
    for number in numbers:
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            check_program(number, folder, met)
        except Exception as error:
            error.add_note(f"program {number}: tests/fix/random_programs.py")
            raise
        finally:
            for rest in sorted(folder.rglob("*"), reverse=True):
                rest.rmdir() if rest.is_dir() else rest.unlink()
    return met


@pytest.mark.slow
@pytest.mark.ci
def test_some_programs(tmp_path):
    met = check_numbers(FAST, tmp_path)
    assert len(met) >= 8, met


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_many_programs(tmp_path):
    first, _, last = os.environ.get("ANE_SWEEP_PROGRAMS", "").partition("-")
    met = check_numbers(range(int(first), int(last)) if last else ALL, tmp_path)
    print(dict(met))
    assert last or set(met) | ELSEWHERE == set(REWRITES), "rewrites that no program reaches"
