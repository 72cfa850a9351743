"""Compiled programs kept between runs, by JAX's persistent compilation cache: most of a first answer's time is compilation.

A folder per version of JAX, of this library and kind of processor, since compiled code fits no other. Its files are run as
code, so it must belong to the user alone. JAX ignores an entry that it cannot read, and warns.
"""

import hashlib
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_LARGEST = 2 << 30  # bytes of all programs, above which the oldest are deleted


def cache(folder: str | os.PathLike[str] | None = None) -> Path:
    """Keep compiled programs between runs of this program, and say where.

    By default in the user's cache folder (`$XDG_CACHE_HOME/epf`, `~/.cache/epf` or the system's equivalent). Call it before
    the first fit. NumPyro orders the parameters of a distribution by Python's hashes, which differ from run to run: start
    Python with PYTHONHASHSEED=0, otherwise many programs are compiled again. The `epf` command does all of this by itself.

    Examples:
        >>> epf.cache("programs").parent.name
        'programs'
    """
    import jax

    path = prepared(folder)
    for name, value in settings(path).items():
        jax.config.update(name.lower(), int(value) if value.isdigit() else value)
    return path


def settings(folder: Path) -> dict[str, str]:
    """The settings of JAX, by the environment variables that JAX reads when it is imported."""
    return {
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",  # hundreds of small programs add up
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
        # Otherwise the path of the folder is part of every key, and a cache that was moved or copied is of no use.
        "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none",
    }


def kind_of_machine() -> str:
    """The versions and the processor that compiled programs fit, as the name of a folder."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else [platform.processor()]
    kinds = {line for line in lines if line.split(":")[0].strip() in ("model name", "flags", "Features", "CPU part")}
    processor = hashlib.sha256("\n".join([platform.machine(), *sorted(kinds)]).encode()).hexdigest()[:8]
    return "-".join([_version("jax"), _version("jaxlib"), _version("epfilter"), processor])


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def prepared(folder: str | os.PathLike[str] | None) -> Path:
    """The folder for this kind of machine, made if it is not there; an error if others could write to it."""
    from epf.errors import SettingError, reason

    try:
        base = _users_folder() if folder is None else Path(folder)
        path = base / kind_of_machine()
        for owned in (base, path):
            owned.mkdir(mode=0o700, parents=True, exist_ok=True)
            facts = owned.stat()
            if hasattr(os, "getuid") and (facts.st_uid != os.getuid() or facts.st_mode & 0o022):
                raise SettingError(
                    f"{owned} is not for compiled programs, as others could write to it: choose one that belongs to you "
                    "alone (chmod 700)."
                )
        _prune(path)
    except (OSError, RuntimeError) as error:  # there may be no home
        raise SettingError(
            f"{folder or 'The cache folder'} cannot be used for compiled programs ({reason(error)}): choose another one."
        ) from None
    return path


def _users_folder() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "epf" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "epf"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "epf"


def _prune(folder: Path) -> None:
    """Delete the oldest programs, if there are too many."""
    files = sorted(
        ((file.stat().st_mtime, file.stat().st_size, file) for file in folder.iterdir() if file.is_file()), reverse=True
    )
    total = 0
    for _, size, file in files:
        total += size
        if total > _LARGEST:
            file.unlink(missing_ok=True)
