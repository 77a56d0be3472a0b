"""Damaged programs of the Neural Engine, and damaged lists of layers: read, or said why not; never a traceback, a hang or a
gigabyte.
"""

from pathlib import Path

import pytest
from fuzz import hostile
from hwx import built
from hwx.test_programs import ADD, PRODUCT

from ane_sweep.__main__ import main

SAMPLES = Path(__file__).parent.parent / "hwx" / "samples"


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> list[bytes]:
    """The samples, and one of each later generation put together."""
    folder = tmp_path_factory.mktemp("programs")
    made = [built.program(folder / "a.hwx", 5, built.frame(ADD), 1, {16: built.INPUTS}, {"x": built.INPUTS})]
    made.append(built.program(folder / "p.hwx", 9, built.frame(*PRODUCT), 2, {}, {}))
    return [path.read_bytes() for path in [*sorted(SAMPLES.glob("*.hwx")), *made]]


def ended(capsys, *words) -> int:
    code = main([str(word) for word in words])
    said = capsys.readouterr()
    assert "Traceback" not in said.out + said.err and len(said.err) < 20_000
    assert code in (0, 2, 3) and (code != 2 or said.err.startswith("error:"))
    return code


def flipped(data: bytes, draw) -> bytes:
    """Some bytes changed, most of them where the file describes itself, or the end cut off."""
    made = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 4, 16))):
        end = draw.choice((64, 0x1000, len(made)))
        made[draw.randrange(min(end, len(made)))] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
    return bytes(made[: draw.randrange(len(made))] if draw.random() < 0.1 else made)


def test_a_program_is_read_or_refused(sources, tmp_path, tries, capsys):
    path = tmp_path / "m.hwx"
    for _, draw in tries:
        source = draw.choice(sources)
        path.write_bytes(flipped(source, draw) if draw.random() < 0.8 else hostile.changed_bytes(source, draw))
        ended(capsys, "hwx", path, *draw.choice(((), ("--json",), ("--task", "0"), (path,))))


def test_its_text_section_is_read_or_refused(sources, tmp_path, tries, capsys):
    path = tmp_path / "m.hwx"
    for _, draw in tries:
        made = bytearray(draw.choice(sources))
        for _ in range(draw.choice((1, 2, 8))):
            made[0x4000 + draw.randrange(0x280)] = draw.randrange(256)
        path.write_bytes(bytes(made))
        ended(capsys, "hwx", path)


def test_a_list_of_layers_is_read_or_refused(tmp_path, tries, capsys):
    path = tmp_path / "net.plist"
    data = (SAMPLES / "net.plist").read_bytes()
    for _, draw in tries:
        made = flipped(data, draw) if draw.random() < 0.7 else hostile.changed_bytes(data, draw)
        path.write_bytes(b"bplist00" + made if draw.random() < 0.1 else made)
        ended(capsys, "hwx", path)
