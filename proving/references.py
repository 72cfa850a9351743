"""Make references: `python -m proving.references [NAME ...] [--again]`. It needs JAX, NumPy, SciPy and NumPyro only."""

import argparse
from dataclasses import replace
from pathlib import Path

import jax

from proving._case import DATA_SETS, REFERENCES, chosen
from proving._reference import make, write


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the references of the proving ground.")
    parser.add_argument("names", nargs="*", help="cases; all by default")
    parser.add_argument("--again", action="store_true", help="also those that are there")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--enough", type=int, help="effective draws, where they are drawn")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    for case in chosen(arguments.names):
        case = replace(case, enough=arguments.enough) if arguments.enough else case
        for k in range(DATA_SETS):
            if case.reference(k).exists() and not arguments.again:
                continue
            found = make(case, k, arguments.seed)
            path = write(case, k, found)
            effective = found["effective_draws"]
            quality = "quadrature" if effective is None else f"{effective:.0f} effective draws"
            means = "  ".join(
                f"{label} {mean:.4g} ({sd:.2g})"
                for label, mean, sd in zip(found["labels"], found["mean"], found["sd"], strict=True)
            )
            place = Path(path).relative_to(REFERENCES.parent)
            print(f"{place}  {found['seconds']} s  {quality}  {means}  {found['remarks']}", flush=True)


if __name__ == "__main__":
    main()
