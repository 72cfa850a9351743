"""`python -m experiments.real`: fit each series, compare with the independent answer, draw the pictures of the pages.

python -m experiments.real nile          # one of them
python -m experiments.real --out DIR     # pictures and numbers go there, not into docs/real

Times are those of a fresh process, compilation included.
"""

import argparse
import importlib
import json
import subprocess
import sys
from pathlib import Path

from experiments.real.outcome import OUT, draw, row, run, table

NAMES = ("nile", "influenza", "lynx_hare", "sunspots", "sterling")


def main() -> None:
    parser = argparse.ArgumentParser(description="Fit real series and compare them with published answers.")
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--out", type=Path, default=OUT)
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    if len(chosen.names) > 1:  # each in a process of its own, so that times include compilation
        for name in chosen.names:
            subprocess.run([sys.executable, "-m", "experiments.real", name, "--out", chosen.out], check=True)
        return
    (name,) = chosen.names
    example = importlib.import_module(f"experiments.real.{name}")
    result, outcome = run(example)
    print(result, result.error, result.verdict, sep="\n")
    (chosen.out / f"{name}.json").write_text(json.dumps(outcome, indent=1) + "\n")
    draw(example, result, chosen.out / f"{name}.png")
    print(row(name, outcome), table(outcome), sep="\n")  # as the pages have them


main()
