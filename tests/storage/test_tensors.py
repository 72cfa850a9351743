"""The file format: every bit comes back, and a file that lies about its size costs no memory."""

import numpy as np
import pytest

from epf.errors import CheckpointError
from epf.storage._files import replace as write
from epf.storage._tensors import inspect, pack
from forged import resealed

ARRAYS = {
    "flags": np.array([True, False]),
    "empty": np.zeros((0, 3), np.float32),
    "scalar": np.asarray(3.5),
    "counts": np.arange(3, dtype=np.uint64),
    "not numbers": np.array([0x7FC12345, 0xFF800001], np.uint32).view(np.float32),  # NaN with a payload, signalling NaN
    "transposed": np.arange(6, dtype=np.int32).reshape(2, 3).T,
}
WANTED = {name: (array.dtype, array.shape) for name, array in ARRAYS.items()}


def test_every_bit_comes_back(tmp_path):
    path = tmp_path / "a.epf"
    write(path, pack({"t": 1}, ARRAYS))
    file = inspect(path)
    assert file.header == {"t": 1}
    for name, array in file.read(WANTED).items():
        assert (array.dtype, array.shape) == WANTED[name]
        assert array.tobytes() == ARRAYS[name].tobytes()
    assert pack({"t": 1}, ARRAYS) == path.read_bytes()


def test_data_types_that_no_reader_expects_are_not_written():
    with pytest.raises(CheckpointError, match="float16, which cannot be stored"):
        pack({}, {"half": np.zeros(2, np.float16)})


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path):
    path = tmp_path / "a.epf"
    content = pack({}, ARRAYS)
    write(path, content)
    file = inspect(path)
    path.write_bytes(content[:-3])
    with pytest.raises(CheckpointError, match="were cut"):
        file.read(WANTED)


@pytest.mark.parametrize(
    ("shape", "words"), [([0, 2**61], "malformed shape"), ([2**61], "does not fit"), ([2**61, 0, 3], "malformed shape")]
)
def test_an_array_of_any_size_on_paper_costs_no_memory(shape, words, tmp_path):
    """One without entries fits any file, and a row of it would have 2^61."""
    path = tmp_path / "a.epf"
    content = pack({}, {"a": np.zeros((0, 3), np.float32)})
    path.write_bytes(resealed(content, lambda header, top, data: top["a"].update(shape=shape) or data))
    with pytest.raises(CheckpointError, match=words):
        inspect(path)


def test_bytes_after_the_arrays_are_not_read(tmp_path):
    """A sparse terabyte after a small table: neither hashed nor held in memory."""
    path = tmp_path / "a.epf"
    path.write_bytes(pack({}, ARRAYS))
    with path.open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(CheckpointError, match="does not fit the file"):
        inspect(path)
