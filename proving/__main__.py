"""Run methods on cases: `python -m proving [--method NAME ...] [--case NAME ...] [--jobs J] [--limit SECONDS] [--again]`.

Each method and case has a process of its own, so that a crash, or a kill after `--limit` seconds, hurts one run only. What
is finished is not run again.
"""

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from proving._case import DATA_SETS, FOLDER, RESULTS, Case, chosen
from proving._methods import METHODS
from proving._run import head, path, write


def main() -> None:
    parser = argparse.ArgumentParser(description="Run methods on the cases of the proving ground.")
    parser.add_argument("--method", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--case", nargs="*", help="cases; all by default")
    parser.add_argument("--half", choices=["named", "unseen"], help="only the cases of this half")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for one run")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--again", action="store_true", help="also what is finished")
    arguments = parser.parse_args()
    cores: SimpleQueue[int] = SimpleQueue()
    for core in range(arguments.jobs):
        cores.put(core)
    work = []
    for case, method in itertools.product(chosen(arguments.case), arguments.method):
        if arguments.half and case.half != arguments.half:
            continue
        files = {k: path(arguments.out, method, case.name, k) for k in range(DATA_SETS) if case.reference(k).exists()}
        left = [k for k, file in files.items() if arguments.again or not file.exists()]
        for k in left:
            files[k].unlink(missing_ok=True)
        if left:
            work.append((method, case, left))
    print(f"{sum(len(left) for *_, left in work)} runs, {arguments.jobs} at a time", flush=True)

    def one(item: tuple[str, Case, list[int]]) -> None:
        core = cores.get()
        try:
            _guarded(*item, arguments.out, arguments.limit, core)
        finally:
            cores.put(core)

    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(one, work))


def _guarded(method: str, case: Case, left: list[int], out: Path, limit: float, core: int) -> None:
    """Run the data sets that are left in one process; a crash or a late run is recorded, and the rest goes on."""
    while left:
        with tempfile.TemporaryFile() as log:
            environment = os.environ | {"PROVING_CORE": str(core)}
            command = [sys.executable, "-m", "proving._run", method, case.name, str(out), *map(str, left)]
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=FOLDER.parent, env=environment)
            began, late = time.monotonic(), False
            while process.poll() is None:
                if path(out, method, case.name, left[0]).exists():
                    _tell(method, case, left.pop(0), time.monotonic() - began)
                    began = time.monotonic()
                    if not left:
                        break
                elif time.monotonic() - began > limit:
                    process.kill()
                    late = True
                    break
                time.sleep(0.1)
            code = process.wait()
            while left and path(out, method, case.name, left[0]).exists():
                _tell(method, case, left.pop(0), time.monotonic() - began)
            if left and (late or code or not path(out, method, case.name, left[0]).exists()):
                log.seek(0)
                text = log.read().decode(errors="replace")[-2000:]
                found = head(method, case, left[0])
                found |= {"outcome": "late" if late else "crashed", "seconds": limit if late else None}
                write(path(out, method, case.name, left[0]), found | {"exit": code, "exception": "" if late else text})
                _tell(method, case, left.pop(0), time.monotonic() - began)


def _tell(method: str, case: Case, k: int, seconds: float) -> None:
    print(f"{method}  {case.name}-{k}  {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
