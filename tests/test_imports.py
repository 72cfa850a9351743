"""Importing the library is light and changes nothing."""

import json
import subprocess
import sys

SCRIPT = """
import json, sys, jax
before = {k: str(v) for k, v in jax.config.values.items()}
import epf
after = {k: str(v) for k, v in jax.config.values.items()}
NAMES = "matplotlib plotly xarray pandas arviz typer rich safetensors pyarrow".split()
heavy = [m for m in NAMES if m in sys.modules]
epf.fit  # filters need no statistical tests, which take most of a second to import
heavy += ["scipy.stats"] * ("scipy.stats" in sys.modules)
print(json.dumps({"heavy": heavy, "changed": sorted(k for k in after if before.get(k) != after[k])}))
"""


def test_import_loads_no_heavy_library_and_changes_no_configuration():
    out = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True).stdout
    assert json.loads(out) == {"heavy": [], "changed": []}
