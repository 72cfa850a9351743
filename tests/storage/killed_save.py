"""A save that is killed at every system call: `python killed_save.py FOLDER` prints what was left as JSON.

Each save is a fork of this process, which has imported the library and has not started JAX. The functions that make system
calls count, and the fork kills itself before or after one of them.
"""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

from epf.storage import _files as files

CALLS = ("open", "fdopen", "fsync", "replace", "link", "stat", "chmod", "fchown", "close", "scandir", "unlink")
OLD, NEW = {"a.epf": b"old a", "b.csv": b"old b"}, {"a.epf": b"new a" * 99, "b.csv": b"new b" * 99}


def save(folder: Path) -> None:
    files.replace_all({folder / name: content for name, content in NEW.items()}, keep=1)


def die_at(number: int, after: bool) -> None:
    """Kill this process at the call of this number."""
    made = 0

    def counted(function):
        def call(*arguments, **settings):
            nonlocal made
            made += 1
            if made == number and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            found = function(*arguments, **settings)
            if made == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return found

        return call

    for name in CALLS:
        setattr(files.os, name, counted(getattr(os, name)))


def main(folder: Path) -> None:
    kills, seen, broken, number = 0, set(), [], 0
    alive = False
    while not alive:
        number += 1
        for after in (False, True):
            place = folder / "place"
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            for name, content in OLD.items():
                (place / name).write_bytes(content)
            child = os.fork()
            if child == 0:
                try:
                    die_at(number, after)
                    save(place)
                finally:
                    os._exit(0)
            status = os.waitpid(child, 0)[1]
            alive = not os.WIFSIGNALED(status)
            kills += not alive
            for name in OLD:
                content = (place / name).read_bytes() if (place / name).exists() else None
                word = "old" if content == OLD[name] else "new" if content == NEW[name] else None
                seen.add(word)
                before = place / f"{name}.1"
                if word is None or (before.exists() and before.read_bytes() not in (OLD[name], NEW[name])):
                    broken.append([number, after, name])
            if alive:
                break
    save(place)
    shutil.rmtree(folder / "place", ignore_errors=True)
    place.mkdir()
    for i in range(3):
        (place / f".a.epf.{i:016x}.partial").write_bytes(b"half")
    save(place)
    left = len([path for path in place.iterdir() if path.name.endswith(".partial")])
    print(json.dumps({"kills": kills, "seen": sorted(map(str, seen)), "broken": broken, "left": left}))


main(Path(sys.argv[1]))
