"""Files that are replaced whole or not at all, by one writer at a time.

New contents go into a temporary file beside the place, under a name that no other process can know, and are moved there once
they are on the disk. So a reader sees the old file or the new one, whenever the machine stops or the disk fills up.
"""

import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from epf.errors import CheckpointError, SettingError, kind, reason

try:
    import fcntl
except ImportError:  # a system without such locks: unique names still keep files whole
    fcntl: Any = None

_TEMPORARY = ".partial"


def as_path(function: str, path: Any) -> Path:
    """The argument of a function as a path."""
    try:
        text = os.fsdecode(path)
    except TypeError:
        raise SettingError(
            f"{function}(path=...) is {kind(path)}: give the path as text or as a pathlib.Path."
        ) from None
    if not text or "\0" in text:
        raise SettingError(f"{function}({text[:40]!r}): this is not the path of a file: give its name.")
    return Path(text)


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, if they are not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_written(folder, error) from error


def replace(path: Path, content: bytes, keep: int = 0) -> None:
    """Replace one file, or make it and its folder; the `keep` files before it become FILE.1 (the newest), FILE.2 ..."""
    make_folder(path.parent)
    replace_all({path: content}, keep)


def replace_all(contents: Mapping[Path, bytes], keep: int = 0) -> None:
    """Replace several files: all are on the disk under other names before the first is moved, in the order given.

    A file that is a symbolic link stays one: what it points to is replaced. A file keeps its mode.
    """
    *_, last = contents
    try:
        # Paths that are links may point to other folders, so each file is moved within its own.
        targets = {path: Path(os.path.realpath(path)) for path in contents}
        with _one_writer({target.parent for target in targets.values()}):
            _remove_remains(targets.values())
            written: list[tuple[Path, Path]] = []
            try:
                for path, content in contents.items():
                    written.append((_write_beside(targets[path], content), path))
                while written:
                    partial, path = written[0]
                    if keep:
                        _shift(path, targets[path], keep)
                    os.replace(partial, targets[path])
                    written.pop(0)
            finally:
                for partial, _ in written:
                    partial.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        raise _not_written(last, error) from error


@contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Refuse a file that another process holds for as long as it runs; the kernel lets go of it when that process ends."""
    if fcntl is None:
        yield
        return
    lock = path.with_name(f"{path.name}.lock")
    handle = _locked(path, lock)
    try:
        yield
    finally:
        with suppress(OSError):
            lock.unlink()
        os.close(handle)


def _locked(path: Path, lock: Path) -> int:
    """The lock file, open and locked."""
    while True:
        try:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise _not_written(path, error) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise CheckpointError(
                f"{path} is being written by another process: wait for it, end it, or choose another file."
            ) from None
        except OSError:  # a file system without locks
            return handle
        with suppress(FileNotFoundError):  # the holder before may have removed the file in the meantime
            if os.path.samestat(os.fstat(handle), os.stat(lock)):
                return handle
        os.close(handle)


def _not_written(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(f"{path} cannot be written ({reason(error)}): check the folder and the disk.")


def _write_beside(target: Path, content: bytes) -> Path:
    """A temporary file with the contents, on the disk, and with the mode of the file that it will replace."""
    partial = _beside(target)
    try:
        before = os.stat(target)
    except FileNotFoundError:
        before = None
    if before is not None and not stat.S_ISREG(before.st_mode):
        raise OSError(f"{target} is not a file")
    # O_EXCL neither follows a link nor opens what someone else put there.
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if before is None else 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            if before is not None:
                with suppress(OSError, AttributeError):  # only root may give a file away
                    os.fchown(handle, before.st_uid, before.st_gid)
                os.chmod(handle if os.chmod in os.supports_fd else partial, stat.S_IMODE(before.st_mode))
            file.write(content)
            file.flush()
            os.fsync(handle)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return partial


def _beside(target: Path) -> Path:
    """A new name in the same folder, hidden, and not too long for it."""
    return target.with_name(f".{target.name[:80]}.{secrets.token_hex(8)}{_TEMPORARY}")


def _remove_remains(targets: Any) -> None:
    """Remove what killed processes left; only the one writer may."""
    for target in targets:
        start = f".{target.name[:80]}."
        with os.scandir(target.parent) as entries:
            for entry in entries:
                middle = entry.name[len(start) : -len(_TEMPORARY)]
                ours = entry.name.startswith(start) and entry.name.endswith(_TEMPORARY) and len(middle) == 16
                if ours and fcntl is not None:
                    with suppress(OSError):
                        os.unlink(entry.path)


def _shift(path: Path, target: Path, keep: int) -> None:
    """FILE becomes FILE.1 while it keeps its own name, FILE.1 becomes FILE.2 and so on; each is there at every moment."""
    if not target.exists():
        return
    last = 1
    while last < keep and _numbered(path, last).exists():
        last += 1
    for i in range(last, 1, -1):
        os.replace(_numbered(path, i - 1), _numbered(path, i))
    second = _beside(_numbered(path, 1))
    try:
        os.link(target, second)
    except OSError:  # a file system without hard links, or a link into another one
        with open(second, "xb") as copy, target.open("rb") as original:
            os.chmod(second, stat.S_IMODE(os.stat(target).st_mode))
            shutil.copyfileobj(original, copy)
    os.replace(second, _numbered(path, 1))


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


@contextmanager
def _one_writer(folders: set[Path]) -> Iterator[None]:
    """Hold these folders while files in them are replaced; on success the moves are on the disk at the end."""
    handles = []
    try:
        for folder in sorted(folders):  # in one order, so that two writers never wait for each other
            handles.append(os.open(folder, os.O_RDONLY))
            if fcntl is not None:
                with suppress(OSError):  # a file system without locks
                    fcntl.flock(handles[-1], fcntl.LOCK_EX)
        yield
        for handle in handles:
            os.fsync(handle)
    finally:
        for handle in handles:
            os.close(handle)
