"""Compiled programs: every sample reads as what it is, in three generations, and what is broken is said."""

import os
import struct
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hwx import built
from hwx.built import words

import ane_sweep
from ane_sweep.__main__ import main
from ane_sweep.errors import PackageError
from ane_sweep.hwx import comparison, facts, files, netplist, program, stream, tasks
from ane_sweep.verbs.hwx import picture, show

SAMPLES = Path(__file__).parent / "samples"

# An addition and a product of a row with a constant matrix for H14: figures of two published records
# (joshuaswarren/mil-hwx-compiler, research/oracles/h14: binary_add_1x64x1x1, matmul_m1_k256_n512_ty1)
ADD = words(
    0x003D0000, 0, 0x2A, 0, 0x00FFF868, 0, 0, 1,
    0x00000640, 0x80,
    0xB60E0000, 0x00010001, 0x40, 0x40, 0x00010001, 1, 4, 0x33, 0,
    0x00018440, 0xE21, 0xE20, 0xCE, 0xCE,
    0x98100447, 0x40, 0x40, 0x01002031, 0x01002031,
    0x87FF0141, 0x01500172, 0x10, 0x420, 0x400, 0x400, 0x440, 0x10, 0x420, 0x400, 0x400, 0x0050017A, 0x860,
    0x00000240, 0x00080000,
    0x80480540, 0x01000E31, 0x40, 0x01302031,
    0x00000549, 0, 0x00000549, 0xDEAD,
    0x22008444, 0, 0, 0x2300844A, 0, 0, 0x22808542, 0, 0,
)  # fmt: skip
PRODUCT = (
    words(
        0x00260000, 0, 8, 0, 0x68, 0, 1, 0x00050001,
        0xB32E0000, 0x00010100, 1, 1, 0x00010100, 0, 0x00014001, 1, 0x10230301, 0x00100000,
        0x80010440, 0xE21, 0xCE, 0x00000454, 0x01002031,
        0x8A0F8141, 0x00500172, 0x1000, 0x100, 0x100, 0x100, 0x100, 0x00500170, 0x10,
        0x80020341, 0x00101C0C, 0x3C00, 0x22808444, 0, 0,
    ),
    words(
        0x00550001, 7, 0x22, 0, 0x00FFF868, 0, 0, 0x00050001,
        0xFFF00640, 0x000202C0, *[0x00010021] * 11, 0x00020651, *[0x00010021] * 5,
        0x000F0657, *(0x4000 * part for part in range(1, 16)), *[0x4000] * 16,
        0xB22E0000, 0x00010001, 0x100, 0x200, 0x00010001, 4, 1, 0x10200005, 0x00100000,
        0x86010141, 0x120, 0x10, 0x14A, 0x1000, 0x80020341, 0x00101C00, 0x3C00,
        0x80400540, 0x01010E31, 0x01302031, 0x20808642, 0, 0, 0x22008542, 0, 0,
    ),
)  # fmt: skip


def of(name: str):
    return ane_sweep.read_hwx(SAMPLES / f"{name}.hwx")


@pytest.mark.parametrize(
    ("name", "tasks"),
    [
        ("conv", [("NE", "convolution or matrix product", "3x1x1", "3x1x1", 192)]),
        ("relu", [("NE", "pass through, then relu", "1x1x77", "1x1x77", 0)]),
        ("sigmoid", [("NE", "pass through, then lookup table", "1x1x77", "1x1x77", 128)]),
        ("sum", [("PE", "add", "64x1x1", "64x1x1", 0)]),
        ("concat", [("NE", "pass through", f"{count}x1x1", f"{count}x1x1", 0) for count in (16384, 16)]),
    ],
)
def test_a_sample_of_an_m1_reads_as_the_operation_it_is_named_after(name, tasks):
    found = of(name)
    assert (found.generation.name, found.compiler.version, found.compiler.target) == ("H13", "4.2.1", "h13")
    seen = [(one.engine, one.operation, one.shape("in"), one.shape("out"), one.constant_bytes) for one in found.tasks]
    assert seen == tasks
    assert found.agrees and found.declared_tasks == len(tasks)
    assert sum(one.unexplained for one in found.tasks) == 0 and found.unknown_commands == {}


def test_tensors_have_their_padding():
    (image, probs) = of("conv").tensors
    assert (image.name, image.role, image.element, image.shape) == ("image", "input", "float16", (1, 3, 1, 1))
    assert (image.bytes, image.used_bytes) == (192, 6) and image.wasted == pytest.approx(1 - 6 / 192)
    assert (probs.name, probs.role) == ("probs@output", "output")
    assert [round(tensor.wasted, 3) for tensor in of("relu").tensors] == [round(1 - 154 / 192, 3)] * 2


def test_what_a_task_moves_is_named_by_the_container():
    (first, second) = of("concat").tasks
    assert [(item.does, item.of, item.offset, item.bytes) for item in first.transfers + second.transfers] == [
        ("reads", "input_0", 0, 1 << 20), ("writes", "output@output", 0, 1 << 20),
        ("reads", "input_1", 0, 1024), ("writes", "output@output", 1 << 20, 1024),
    ]  # fmt: skip
    (added,) = of("sum").tasks
    assert [(item.does, item.of) for item in added.transfers] == [
        ("reads", "image"), ("reads", "image2"), ("writes", "probs@output"),
    ]  # fmt: skip


def test_constants_are_counted_with_the_parts_they_are_cut_into():
    (constants,) = of("conv").constants
    assert (constants.bytes, constants.kernels, constants.parts) == (192, 1, 3)
    (one,) = of("conv").tasks
    assert one.constant_parts == 3 and one.constant_bytes == constants.bytes


def test_an_h14_addition_reads_two_inputs_by_their_base_numbers(tmp_path):
    names = {"x": built.INPUTS, "z": built.INPUTS + 0x4000, "y": built.OUTPUT}
    bars = {16: names["x"], 24: names["z"], 20: names["y"]}
    found = program.read(built.program(tmp_path / "a.hwx", 5, built.frame(ADD), 1, bars, names))
    (one,) = found.tasks
    assert (found.generation.name, found.agrees, one.words) == ("H14", True, 61)
    assert (one.engine, one.operation, one.shape("in"), one.shape("out")) == ("PE", "add", "64x1x1", "64x1x1")
    moved = [(item.does, item.of, item.bar, item.bytes) for item in one.transfers]
    assert moved == [("reads", "x", 16, 4096), ("reads", "z", 24, 4096), ("writes", "y", 20, 4096)]
    assert one.unexplained == 0


def test_an_h14_product_is_a_preparation_and_the_product_with_its_constants_in_sixteen_parts(tmp_path):
    found = program.read(built.program(tmp_path / "p.hwx", 5, built.frame(*PRODUCT), 2, {}, {}))
    first, second = found.tasks
    assert (first.words, second.words, found.declared_tasks, found.agrees) == (38, 85, 2, True)
    assert (first.operation, first.shape("in")) == ("pass through", "1x1x256")
    assert (second.operation, second.shape("in"), second.shape("out")) == (
        "convolution or matrix product",
        "256x1x1",
        "512x1x1",
    )
    assert (second.constant_bytes, second.constant_parts, second.estimate_us) == (2 * 256 * 512, 16, 7)
    assert sum(one.unexplained for one in found.tasks) == 0


def test_an_m6_convolution_has_the_kernel_that_its_study_says():
    """A 1x8 convolution of 256 channels over 16x32; the last write is not in the published words and left out here."""
    held = [int(word, 16) for word in (SAMPLES / "h18g_task.txt").read_text().split()][4:-1]
    held[0] = len(held) << 16
    (found,) = stream.read(memoryview(words(1, 0, 0, 0, *held)), facts.generation(11), None, None)
    one = tasks.read_task(0, found, "h18g", {})
    assert (one.operation, one.shape("in"), one.shape("out")) == (
        "convolution or matrix product, then relu",
        "256x16x32",
        "256x16x32",
    )
    assert (one.geometry["kernel_w"], one.geometry["kernel_h"]) == (8, 1)
    assert one.constant_bytes == 256 * 256 * 8 * 2 and one.constant_parts == 16 and one.unexplained == 0
    (read,) = one.transfers
    assert (read.does, read.row_bytes, read.plane_bytes, read.bytes) == ("reads", 64, 1024, 256 * 1024)


@pytest.mark.parametrize(("subtype", "words_of_header"), [(4, 10), (5, 8), (9, 9)])
def test_a_header_that_ends_in_two_ones_has_one_more_word(subtype, words_of_header):
    write = words(0x0000000C, 64) if subtype == 4 else words(0x00000003, 64)  # one register, of channels
    size = words_of_header + 1 + 2
    head = [0] * words_of_header
    head[0], head[-1] = (0 if subtype == 4 else size << 16), 0x50003
    text = words(*head, 8) + write
    (found,) = stream.read(memoryview(text), facts.generation(subtype), size, 1)
    assert found.extended == 8 and found.registers == {0xC: 64}


def test_counts_that_differ_are_a_doubt_and_an_unknown_generation_is_named(tmp_path, capsys):
    wrong = built.program(tmp_path / "w.hwx", 5, built.frame(ADD), 3, {}, {})
    assert main(["hwx", str(wrong)]) == 3
    assert "1 (1 PE); the container says 3: THESE DIFFER" in capsys.readouterr().out
    new = built.program(tmp_path / "n.hwx", 77, built.frame(ADD), 1, {}, {})
    assert main(["hwx", str(new)]) == 3
    assert "no source has published how subtype 77 writes its tasks; the container says 1" in capsys.readouterr().out


def test_several_files_are_compared_with_the_first():
    found = files.read([SAMPLES / "relu.hwx", SAMPLES / "sigmoid.hwx"])
    (differs,) = found.to_dict()["differences"]
    (task,) = differs["tasks"]
    assert task["operation"] == ["pass through, then relu", "pass through, then lookup table"]
    assert "differing: 1 in what they do" in show.compare(found.programs)
    same = comparison.compare_programs(of("relu"), of("relu"))
    assert (same["tasks"], same["registers"], same["flags"]) == ([], 0, {})


def test_one_task_is_drawn_with_characters_and_as_a_picture(tmp_path, capsys):
    assert main(["hwx", str(SAMPLES / "sum.hwx"), "--task", "0", "--svg", str(tmp_path / "t.svg")]) == 0
    said = capsys.readouterr().out
    assert "[ PE: add, 64x1x1 -> 64x1x1, kernel 1x1 ] --> probs@output (4096 B)" in said
    assert "0x08800  0x00080000  PECfg" in said
    drawn = ElementTree.fromstring((tmp_path / "t.svg").read_text())
    texts = [item.text for item in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert "image2 (4096 B)" in texts and "PE: add" in texts
    assert picture.svg(of("conv"), of("conv").tasks[0]).count("<rect") == 4  # one of them the constants


def test_the_list_of_layers_that_a_program_was_made_from_is_read():
    found = netplist.read(SAMPLES / "net.plist")
    (network,) = found.networks
    assert [(unit.name, unit.type, unit.inputs) for unit in network.units] == [
        ("probs_tmp_0", "Conv", ["image"]), ("probs", "GOC", ["probs_tmp_0"]),
    ]  # fmt: skip
    assert network.units[0].params["KernelOffset"] == 192 and len(network.weights) == 2
    assert "input   image 1x3x1x1 Float16" in netplist.format_text(found)


def test_a_folder_is_searched_for_programs_and_their_lists(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "model.hwx").write_bytes((SAMPLES / "conv.hwx").read_bytes())
    (tmp_path / "a" / "net.plist").write_bytes((SAMPLES / "net.plist").read_bytes())
    found = files.read([tmp_path])
    assert (len(found.programs), len(found.plists), found.errors) == (1, 1, [])
    (tmp_path / "empty").mkdir()
    assert files.read([tmp_path / "empty"]).errors == [f"{tmp_path / 'empty'}: no .hwx and no net.plist in it"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data[:20], "the header at byte 0 lies outside its 20 bytes"),
        (lambda data: b"\xcf\xfa\xed\xfe" + data[4:], "it begins with 0xfeedfacf"),
        (lambda data: data[:0x4000], "section __TEXT,__text: 628 bytes at byte 16384"),
        (lambda data: data[:16] + struct.pack("<I", 10_000) + data[20:], "load command 11"),
    ],
)
def test_what_is_broken_is_said_with_where(change, said, tmp_path):
    path = tmp_path / "b.hwx"
    path.write_bytes(change((SAMPLES / "conv.hwx").read_bytes()))
    with pytest.raises(PackageError, match=said):
        program.read(path)


def test_a_list_of_tasks_that_comes_back_to_itself_ends():
    held = bytearray(words(*[0] * 12, *[0] * 12))
    struct.pack_into("<I", held, 4 * 7, 48)
    struct.pack_into("<I", held, 4, 11 << 16)
    struct.pack_into("<I", held, 48 + 4 * 7, 0x400000)
    with pytest.raises(PackageError, match="task 2: 4 bytes at byte 4194304 of 96"):
        stream.read(memoryview(bytes(held)), facts.generation(4), 12, None)
    struct.pack_into("<I", held, 48 + 4, 11 << 16)
    struct.pack_into("<I", held, 48 + 4 * 7, 48)
    with pytest.raises(PackageError, match="comes back to byte 48"):
        stream.read(memoryview(bytes(held)), facts.generation(4), 12, None)


def test_every_fact_names_a_source_that_is_listed():
    known = {row["source"] for row in facts.read_rows("sources")}
    for table in ("generations", "registers", "headers", "descriptors", "blocks", "operations", "elements"):
        assert {row["source"] for row in facts.read_rows(table)} <= known, table
    for layout in ("h13", "h14", "h15", "h18", "h18g"):
        assert all(facts.find_block(layout, field.address) for field in facts.fields(layout).values())


def test_the_text_of_every_sample_is_plain():
    for path in sorted(SAMPLES.glob("*.hwx")):
        assert show.text(program.read(path)).startswith(f"{path}: H13")


@pytest.mark.parametrize("name", ["a.hwx", "net.plist"])
def test_a_pipe_or_a_device_is_refused_and_not_waited_for(name, tmp_path):
    os.mkfifo(tmp_path / name)
    assert files.read([tmp_path / name]).errors == [f"{tmp_path / name}: not read: it is no regular file"]
