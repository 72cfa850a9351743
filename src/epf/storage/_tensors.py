"""Named arrays in one file, in the safetensors format: written whole or not at all, read without running anything.

        8 bytes: n, little endian | n bytes of JSON: {"__metadata__": {...}, name: {dtype, shape, data_offsets}} | the arrays

The format is read here rather than by its library so that a file that nobody vouches for meets the strictest order: the
size of the file, the table, the caller's own list of what must be there, the checksum, and only then is an array made.
Other programs read these files with the library as usual.
"""

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from epf.errors import CheckpointError, reason

DTYPES = {
    "BOOL": np.dtype(bool),
    "U8": np.dtype(np.uint8),
    "I32": np.dtype(np.int32),
    "I64": np.dtype(np.int64),
    "U32": np.dtype(np.uint32),
    "U64": np.dtype(np.uint64),
    "F32": np.dtype(np.float32),
    "F64": np.dtype(np.float64),
}
_CODES = {dtype: code for code, dtype in DTYPES.items()}
_HEADER_LIMIT = 4 << 20
_CHUNK = 1 << 20


class Layout:
    """One array of a file: what it is and where it lies."""

    __slots__ = ("begin", "dtype", "end", "shape")

    def __init__(self, dtype: np.dtype, shape: tuple[int, ...], begin: int, end: int) -> None:
        self.dtype, self.shape, self.begin, self.end = dtype, shape, begin, end


class TensorFile:
    """The header of a file that was found to be whole; `read` gives its arrays."""

    def __init__(self, path: Path, header: dict[str, Any], layouts: dict[str, Layout], start: int) -> None:
        self.path, self.header, self.layouts = path, header, layouts
        self._start = start

    def read(self, wanted: Mapping[str, tuple[np.dtype, tuple[int, ...]]]) -> dict[str, np.ndarray]:
        """The arrays, if they are those that are wanted, each of its kind and shape."""
        if self.layouts.keys() != wanted.keys():
            odd = min(self.layouts.keys() ^ wanted.keys())
            what = "lacks" if odd in wanted else "has an unexpected"
            raise _refusal(self.path, f"{what} array {odd[:60]!r}")
        for name, (dtype, shape) in wanted.items():
            found = self.layouts[name]
            if (found.dtype, found.shape) != (dtype, shape):
                raise _refusal(
                    self.path,
                    f"array {name[:60]!r} is {found.dtype}{list(found.shape)} in it, where {dtype}{list(shape)} belongs",
                )
        with self.path.open("rb") as file:
            return {name: self._one(file, self.layouts[name]) for name in wanted}

    def _one(self, file: BinaryIO, layout: Layout) -> np.ndarray:
        file.seek(self._start + layout.begin)
        data = file.read(layout.end - layout.begin)
        if len(data) != layout.end - layout.begin:
            raise _refusal(self.path, "it became shorter while it was read")
        return np.frombuffer(data, layout.dtype).reshape(layout.shape)


def pack(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """The bytes of a file: `header` is any JSON object, stored as text in the format's metadata beside a checksum."""
    table: dict[str, Any] = {}
    parts: list[bytes] = []
    offset = 0
    # The format's library wants large elements first, so that every array begins at a multiple of its element.
    for name, array in sorted(arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0])):
        if array.dtype not in _CODES:
            raise CheckpointError(f"The array {name!r} has elements of kind {array.dtype}, which cannot be stored.")
        data = np.ascontiguousarray(array).tobytes()
        shape = [int(size) for size in array.shape]
        table[name] = {"dtype": _CODES[array.dtype], "shape": shape, "data_offsets": [offset, offset + len(data)]}
        parts.append(data)
        offset += len(data)
    text = json.dumps(header, allow_nan=False)  # in its own order, as settings are to be printed
    hasher = _hasher(text, table)
    for part in parts:
        hasher.update(part)
    top = json.dumps({"__metadata__": {"epf": text, "checksum": hasher.hexdigest()}, **table}).encode()
    top += b" " * (-len(top) % 8)
    return b"".join([len(top).to_bytes(8, "little"), top, *parts])


def _hasher(text: str, table: Mapping[str, Any]) -> Any:
    """The checksum covers the header and the table too: a changed time or shape is as bad as a changed number."""
    return hashlib.sha256(json.dumps([text, table], sort_keys=True).encode())


def write(path: Path, content: bytes, keep: int = 0) -> None:
    """Put a file in its place in one move, whatever happens meanwhile; the `keep` files before it become FILE.1, FILE.2 ..

    Until the move the old file stands, after it the new one; both the file and the move are on the disk on return.
    """
    part = path.with_name(f"{path.name}.partial")  # one that a killed process left is simply written again
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if keep and path.exists():
            for i in range(keep - 1, 0, -1):
                if _numbered(path, i).exists():
                    os.replace(_numbered(path, i), _numbered(path, i + 1))
            _second_name(path, _numbered(path, 1))
        os.replace(part, path)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be written ({reason(error)}): check the folder and the disk.") from error


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _second_name(path: Path, other: Path) -> None:
    """The old file under another name, while it keeps its own."""
    other.unlink(missing_ok=True)
    try:
        os.link(path, other)
    except OSError:  # a file system without hard links
        shutil.copyfile(path, other)


def inspect(path: Path) -> TensorFile:
    """The header of a file, after its table and its checksum were found right. No array is made."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise CheckpointError(f"{path} is no file: give the path of a checkpoint.")
        with path.open("rb") as file:
            return _inspect(path, file, status.st_size)
    except FileNotFoundError:
        raise CheckpointError(f"There is no file {path}: check the path.") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({reason(error)}): check the path.") from error


def _inspect(path: Path, file: BinaryIO, size: int) -> TensorFile:
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or not 2 <= length <= min(_HEADER_LIMIT, size - 8):
        raise _refusal(path, "its first bytes are not those of a checkpoint")
    try:
        top = json.loads(file.read(length).decode(), object_pairs_hook=_no_doubles, parse_constant=_no_constant)
        metadata = top.pop("__metadata__")
        text, checksum = metadata["epf"], metadata["checksum"]
        header = json.loads(text, object_pairs_hook=_no_doubles, parse_constant=_no_constant)
        if not (isinstance(checksum, str) and isinstance(header, dict)):
            raise TypeError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _refusal(path, "its header cannot be read") from None
    layouts = _layouts(path, top, size - 8 - length)
    hasher = _hasher(text, top)
    while chunk := file.read(_CHUNK):
        hasher.update(chunk)
    if hasher.hexdigest() != checksum:
        raise _refusal(path, "its checksum is wrong")
    return TensorFile(path, header, layouts, 8 + length)


def _layouts(path: Path, table: dict[str, Any], size: int) -> dict[str, Layout]:
    """The table, if its arrays fill the file exactly, one after the other."""
    layouts: dict[str, Layout] = {}
    for name, entry in table.items():
        if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
            raise _refusal(path, "its table of arrays is malformed")
        code, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(code, str) or code not in DTYPES:
            raise _refusal(path, f"array {name[:60]!r} has elements of an unknown kind")
        if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2 or len(shape) > 32:
            raise _refusal(path, f"array {name[:60]!r} has a malformed shape or place")
        length = DTYPES[code].itemsize
        for extent in shape:  # Python's whole numbers do not overflow; the product is bounded as it grows
            length *= extent
            if extent and length > size:
                break
        if offsets[1] - offsets[0] != length or offsets[1] > size:
            raise _refusal(path, f"array {name[:60]!r} does not fit into the file, which is cut or altered")
        layouts[name] = Layout(DTYPES[code], tuple(shape), *offsets)
    end = 0
    for layout in sorted(layouts.values(), key=lambda layout: (layout.begin, layout.end)):
        if layout.begin != end:
            raise _refusal(path, "its arrays overlap or leave gaps")
        end = layout.end
    if end != size:
        raise _refusal(path, "it is longer or shorter than its arrays")
    return layouts


def _are_sizes(values: object) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**62 for value in values)


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _refusal(path: Path, why: str) -> CheckpointError:
    return CheckpointError(f"{path} cannot be used: {why}. Use an earlier copy, or start afresh.")
