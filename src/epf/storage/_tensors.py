"""Named arrays in one safetensors file, packed into bytes and read without running anything.

        8 bytes: n, little endian | n bytes of JSON: {"__metadata__": {...}, name: {dtype, shape, data_offsets}} | the arrays

The safetensors library packs the arrays and takes them apart. What it does not promise is done here: a checksum covers
header and arrays, and an untrusted file passes cheap checks (header size, file size against the table, the arrays that the
caller expects) before any array is read. The file is read, not mapped into memory: a mapped file that another process cuts
short would kill this one.
"""

import hashlib
import json
import math
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy

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
_HEADER_LIMIT = 4 << 20
_CHUNK = 1 << 20
_SMALLEST_LIMIT = 1 << 16


class Layout(NamedTuple):
    """Data type and shape of one array."""

    dtype: np.dtype
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


class TensorFile(NamedTuple):
    """The header and the table of a file whose checksum is right; `read` gives its arrays."""

    path: Path
    header: dict[str, Any]
    layouts: dict[str, Layout]

    def read(self, wanted: Mapping[str, tuple[np.dtype, tuple[int, ...]]]) -> dict[str, np.ndarray]:
        """The arrays, if they are exactly the `wanted` ones, each with its data type and shape."""
        if self.layouts.keys() != wanted.keys():
            odd = min(self.layouts.keys() ^ wanted.keys())
            what = "lacks" if odd in wanted else "has an unexpected"
            raise _refusal(self.path, f"{what} array {odd[:60]!r}")
        for name, layout in self.layouts.items():
            if layout != wanted[name]:
                belongs = Layout(*wanted[name])
                raise _refusal(self.path, f"array {name[:60]!r} is {layout} in it, where {belongs} belongs")
        try:
            found = dict(safetensors.deserialize(self.path.read_bytes()))
            return {k: np.frombuffer(found[k]["data"], v.dtype).reshape(v.shape) for k, v in self.layouts.items()}
        except (safetensors.SafetensorError, KeyError, ValueError) as error:
            raise _refusal(self.path, f"its arrays overlap, leave gaps or were cut ({reason(error)})") from None


def pack(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """The bytes of a file: `header` is any JSON object, stored as text in the format's metadata beside a checksum."""
    for name, array in arrays.items():
        if array.dtype not in DTYPES.values():
            raise CheckpointError(f"The array {name!r} has data type {array.dtype}, which cannot be stored.")
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    text = json.dumps(header, allow_nan=False)
    content = safetensors.numpy.save(arrays)
    start = 8 + int.from_bytes(content[:8], "little")
    table, data = json.loads(content[8:start]), memoryview(content)[start:]
    hasher = _hasher(text, table)
    hasher.update(data)
    # The metadata needs the table for its checksum; the library would also write its entries in a random order.
    top = json.dumps({"__metadata__": {"epf": text, "checksum": hasher.hexdigest()}, **table}).encode()
    top += b" " * (-len(top) % 8)
    return b"".join([len(top).to_bytes(8, "little"), top, data])


def _hasher(text: str, table: Mapping[str, Any]) -> Any:
    """SHA-256 of the header and the table, to which the arrays are added: a changed shape is as bad as a changed number."""
    return hashlib.sha256(json.dumps([text, table], sort_keys=True).encode())


def inspect(path: Path) -> TensorFile:
    """Header and table of a file whose size and checksum are right. No array is made."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise CheckpointError(f"{path} is not a file: give the path of a checkpoint.")
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
        table = json.loads(file.read(length).decode(), object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
        metadata = table.pop("__metadata__")
        text, checksum = metadata["epf"], metadata["checksum"]
        header = json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
        if not (isinstance(checksum, str) and isinstance(header, dict)):
            raise TypeError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _refusal(path, "its header cannot be read") from None
    layouts = {name: _layout(path, name, entry, size) for name, entry in table.items()}
    if sum(math.prod((layout.dtype.itemsize, *layout.shape)) for layout in layouts.values()) != size - 8 - length:
        raise _refusal(path, "the table of arrays does not fit the file, which is cut or altered")
    hasher = _hasher(text, table)
    while chunk := file.read(_CHUNK):
        hasher.update(chunk)
    if hasher.hexdigest() != checksum:
        raise _refusal(path, "its checksum is wrong")
    return TensorFile(path, header, layouts)


def _layout(path: Path, name: str, entry: Any, size: int) -> Layout:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise _refusal(path, "its table of arrays is malformed")
    code, shape = entry["dtype"], entry["shape"]
    if not isinstance(code, str) or code not in DTYPES:
        raise _refusal(path, f"array {name[:60]!r} has an unknown data type")
    valid = isinstance(shape, list) and len(shape) <= 32 and all(type(n) is int and 0 <= n < 2**62 for n in shape)
    # An array without entries fits any file, and a row of it could still have any size.
    if not valid or (0 in shape and math.prod(n for n in shape if n) > max(size, _SMALLEST_LIMIT)):
        raise _refusal(path, f"array {name[:60]!r} has a malformed shape")
    return Layout(DTYPES[code], tuple(shape))


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate name")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _refusal(path: Path, why: str) -> CheckpointError:
    return CheckpointError(f"{path} cannot be used: {why}. Use an earlier copy, or start again.")
