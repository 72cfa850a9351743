"""Runs each benchmark in its own process, pinned to one core: `python -m benchmarks [name ...] [--quick]`."""

import os
import subprocess
import sys

NAMES = (
    "bootstrap",
    "extended",
    "accuracy",
    "storvik",
    "memory",
    "imports",
    "watch",
    "nodes",
    "noise",
    "latency",
    "panel",
    "start",
    "structure",
)
LONG = ("soak",)  # only by name: it takes half an hour

if __name__ == "__main__":
    options = [argument for argument in sys.argv[1:] if argument.startswith("--")]
    wanted = [argument for argument in sys.argv[1:] if argument not in options] or NAMES
    one_core = {
        **os.environ,
        "XLA_FLAGS": f"--xla_cpu_multi_thread_eigen=false {os.environ.get('XLA_FLAGS', '')}",
        "OMP_NUM_THREADS": "1",
    }
    for name in wanted:
        if name not in (*NAMES, *LONG):
            sys.exit(f"There is no benchmark {name!r}: choose from {', '.join((*NAMES, *LONG))}.")
        pin = ["taskset", "-c", "0"] if sys.platform == "linux" else []
        subprocess.run([*pin, sys.executable, "-m", f"benchmarks.{name}", *options], env=one_core, check=True)
