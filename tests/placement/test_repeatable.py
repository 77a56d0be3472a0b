"""A prediction and an estimate follow from the package alone: no process says anything else than another.

Dictionaries of a protobuf come in an order that changes with the addresses of a process, sets of texts with its hash seed.
"""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from placement.by_hand import Writer

from ane_sweep.mil import graph
from ane_sweep.placement import programs

PRINTS = """
import json, sys
from dataclasses import asdict
from pathlib import Path
from ane_sweep.mil import graph
from ane_sweep.placement import judge, predict
for path in map(Path, sys.argv[1:]):
    print(path.name, json.dumps(predict.op_times(path, "m4")))
    program = graph.load(path)
    print([(op.type, list(op.inputs.items())) for op in program.ops])
    for chip in ("a14", "m1_max", "m4", "m4_pro"):
        for units in ("cpu_and_ne", "all", "cpu_only"):
            found = judge.judge(path, chip=chip, compute_units=units)
            print(found, found.prediction.estimate, json.dumps(found.to_dict()), json.dumps(asdict(found.summary)))
"""


def drawn(path: Path, seed: int) -> Path:
    """A package of layers whose operands differ in size, in either order, some of them read by more than one op."""
    draw = random.Random(seed)
    channels, size, count = draw.choice((32, 64, 96)), draw.choice((33, 56, 112)), draw.randrange(8, 20)
    image, column = ("fp16", (1, channels, size, size)), ("fp16", (1, channels, 1, 1))
    writer = Writer(x=image, mask=("fp16", (1, 1, size, size)), gate=column)
    before, value = "x", "x"
    for _ in range(count):
        kind = draw.choice(
            ("conv", "conv", "add", "add", "mul", "sub", "matmul", "select", "layer_norm", "tan", "concat")
        )
        if kind == "conv":
            shape = (channels, channels, 3, 3)
            made = writer.op("conv", image, x=value, weight=writer.const("fp16", shape), pad_type=_text(writer, "same"))
        elif kind == "concat":
            axis, interleave = writer.const("int32", (), (1,)), writer.const("bool", (), (False,))
            both = ("fp16", (1, 2 * channels, size, size))
            wide = writer.op("concat", both, values=[value, before], axis=axis, interleave=interleave)
            made = writer.op("conv", image, x=wide, weight=writer.const("fp16", (channels, 2 * channels, 1, 1)))
        elif kind == "select":
            cond = writer.op("greater", ("bool", image[1]), x=value, y="mask")
            made = writer.op("select", image, cond=cond, a=value, b="gate")
        elif kind == "matmul":
            made = writer.op("matmul", image, x=value, y=writer.const("fp16", (size, size)))
        elif kind == "layer_norm":
            weights = {name: writer.const("fp16", (channels,)) for name in ("gamma", "beta")}
            made = writer.op("layer_norm", image, x=value, axes=writer.const("int32", (1,), (1,)), **weights)
        elif kind == "tan":
            made = writer.op("tan", image, x=value)
        else:
            operands = [value, draw.choice(("mask", "gate", before, writer.const("fp16", column[1])))]
            draw.shuffle(operands)
            made = writer.op(kind, image, x=operands[0], y=operands[1])
        before, value = value, made
    return writer.runs(value).save(path)


def _text(writer: Writer, text: str) -> str:
    return writer.const("string", (), text)


def said_by(processes: int, packages: list[Path], tmp_path: Path) -> list[str]:
    """What fresh processes with different hash seeds say of the packages."""
    command = [sys.executable, "-c", PRINTS, *map(str, packages)]
    started = [
        subprocess.run(
            command,
            env={**os.environ, "PYTHONHASHSEED": str(seed), "XDG_DATA_HOME": str(tmp_path)},
            check=True,
            capture_output=True,
            text=True,
        )
        for seed in range(processes)
    ]
    return [one.stdout for one in started]


def check(count: int, processes: int, tmp_path: Path) -> None:
    packages = [drawn(tmp_path / f"{seed}.mlpackage", seed) for seed in range(count)]
    first, *others = said_by(processes, packages, tmp_path)
    assert first.count(" ms (") > count, "some of them are estimated"
    for other in others:
        assert other.splitlines() == first.splitlines()


@pytest.mark.slow
def test_fresh_processes_say_the_same_of_some_packages(tmp_path):
    check(6, 5, tmp_path)


@pytest.mark.slow
def test_fresh_processes_say_the_same_of_many_packages(tmp_path):
    check(30, 8, tmp_path)


def test_what_an_op_reads_is_listed_by_name_whatever_order_a_process_keeps_it_in(tmp_path):
    path = drawn(tmp_path / "m.mlpackage", 1)
    operands = [list(site.inputs) for site in programs.load(path).sites]
    operands += [list(op.inputs) for op in graph.load(path).ops]
    assert operands == [sorted(names) for names in operands] and any(len(names) > 2 for names in operands)
