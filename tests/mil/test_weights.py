"""weight.bin: what we write, coremltools reads; what is damaged is said."""

import struct

import numpy as np
import pytest

from ane_sweep.errors import PackageError
from ane_sweep.mil.weights import BlobFile, BlobWriter

ARRAYS = [np.arange(5, dtype=np.float16), np.arange(33, dtype=np.float32), np.arange(64, dtype=np.uint8)]
CODES = [1, 2, 3]


@pytest.fixture
def blob(tmp_path):
    """(path, offsets) of a weight file with ARRAYS."""
    path = tmp_path / "weight.bin"
    with BlobWriter(path) as writer:
        offsets = [
            writer.add_pieces(code, array.nbytes, 0, iter([array.tobytes()[:7], array.tobytes()[7:]]))
            for code, array in zip(CODES, ARRAYS)
        ]
    return path, offsets


def test_round_trip_without_copies(blob):
    path, offsets = blob
    file = BlobFile(path)
    base = file.bytes.ctypes.data
    for offset, array in zip(offsets, ARRAYS):
        payload = file.payload(offset)
        np.testing.assert_array_equal(payload.view(array.dtype), array)
        assert base <= payload.ctypes.data < base + file.size and payload.ctypes.data % 64 == 0
        assert b"".join(file.pieces(offset)) == array.tobytes()


def test_coremltools_reads_what_we_write(blob):
    from coremltools.libmilstoragepython import _BlobStorageReader

    path, offsets = blob
    reader = _BlobStorageReader(str(path))
    np.testing.assert_array_equal(reader.read_float_data(offsets[1]), ARRAYS[1])
    np.testing.assert_array_equal(reader.read_uint8_data(offsets[2]), ARRAYS[2])


def test_we_read_what_coremltools_writes(tmp_path):
    from coremltools.libmilstoragepython import _BlobStorageWriter

    path = tmp_path / "theirs.bin"
    writer = _BlobStorageWriter(str(path))
    offset = writer.write_float_data(ARRAYS[1])
    del writer
    np.testing.assert_array_equal(BlobFile(path).payload(offset).view(np.float32), ARRAYS[1])


def test_records_are_copied_whole(blob, tmp_path):
    path, offsets = blob
    source = BlobFile(path)
    with BlobWriter(tmp_path / "copy.bin") as writer:
        moved = [writer.add(source, offset) for offset in reversed(offsets)]
    copy = BlobFile(tmp_path / "copy.bin")
    for offset, array in zip(moved, reversed(ARRAYS)):
        np.testing.assert_array_equal(copy.payload(offset).view(array.dtype), array)


def test_a_record_must_be_as_long_as_it_says(tmp_path):
    with pytest.raises(ValueError, match="announced 8 bytes and brought 4"), BlobWriter(tmp_path / "w.bin") as writer:
        writer.add_pieces(1, 8, 0, iter([b"1234"]))


def patched(path, position, data):
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)
    return path


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 12345\n" % (b"5e" * 32)


def test_what_old_writers_left_in_the_padding_of_whole_bytes_is_no_damage(blob, tmp_path):
    """coremltools up to 7.2 does not write these eight bytes."""
    path, offsets = blob
    for offset in offsets:
        patched(path, offset + 24, struct.pack("<Q", 0x00007F3A12345678))
    file = BlobFile(path)
    assert [file.record(offset).padding_bits for offset in offsets] == [0, 0, 0]
    with BlobWriter(tmp_path / "copy.bin") as writer:
        moved = writer.add(file, offsets[1])
    assert (tmp_path / "copy.bin").read_bytes()[moved + 24 : moved + 32] == bytes(8), "and is not handed on"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda p, o: patched(p, o, b"\0\0\0\0"), "lacks the mark"),
        (lambda p, o: patched(p, o + 4, struct.pack("<I", 99)), "element type 99"),
        (lambda p, o: patched(p, o + 8, struct.pack("<Q", 1 << 40)), "not inside the file"),
        (lambda p, o: patched(p, o + 16, struct.pack("<Q", 1 << 40)), "not inside the file"),
        (lambda p, o: patched(p, o + 16, struct.pack("<Q", o)), "not inside the file"),
        (
            lambda p, o: patched(patched(p, o + 4, struct.pack("<I", 11)), o + 24, struct.pack("<Q", 9)),
            "9 padding bits",
        ),
        (lambda p, o: p.write_bytes(POINTER), "a git-lfs pointer of 130 bytes.*git lfs pull"),
        (lambda p, o: p.write_bytes(p.read_bytes()[: o + 64]), "not inside the file"),
        (lambda p, o: p.write_bytes(p.read_bytes()[: o + 10]), "no record can start there"),
        (lambda p, o: patched(p, 4, struct.pack("<I", 7)), "version 7"),
        (lambda p, o: p.write_bytes(b"short"), "5 bytes are too few"),
        (lambda p, o: p.unlink(), "cannot be read"),
    ],
)
def test_damage_is_named(blob, change, words):
    path, offsets = blob
    change(path, offsets[1])
    with pytest.raises(PackageError, match=words):
        BlobFile(path).payload(offsets[1])


@pytest.mark.parametrize("offset", [0, 1, 63, 65, 1 << 50])
def test_offsets_that_cannot_be(blob, offset):
    with pytest.raises(PackageError, match="no record can start there"):
        BlobFile(blob[0]).record(offset)
