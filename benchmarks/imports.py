"""Import time of epf, and of jax and numpyro alone: the minimum over several fresh interpreters."""

import subprocess
import sys
import time

from benchmarks.timing import report


def fastest(statement: str, repeats: int = 7) -> float:
    best = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", statement], check=True)
        best = min(best, time.perf_counter() - began)
    return best


if __name__ == "__main__":
    base, own = fastest("import jax, numpyro.distributions"), fastest("import epf")
    report("imports", [{"jax_numpyro_s": base, "epf_s": own, "extra_s": own - base}])
