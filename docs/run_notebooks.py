"""Execute the notebooks, and write each as a page with its pictures; `make docs` does it before it builds the site.

    python docs/run_notebooks.py            # all of docs/notebooks
    python docs/run_notebooks.py nile       # one of them

A cell that fails ends the build. The pages are not kept in the repository: the notebooks are, without output. They run side
by side, as each has one thing to do at a time. Compiled programs are kept for the next build.
"""

import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import nbformat
from nbconvert import MarkdownExporter
from nbconvert.preprocessors import ExecutePreprocessor

from epf.storage._cache import prepared, settings

FOLDER = Path(__file__).parent / "notebooks"
PICTURES = "%config InlineBackend.figure_format = 'png'\nimport matplotlib; matplotlib.rcParams['figure.dpi'] = 110"


def run(path: Path) -> None:
    """One notebook, in a folder of its own for what it writes."""
    began, notebook = time.perf_counter(), nbformat.read(path, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(PICTURES))
    with tempfile.TemporaryDirectory() as folder:
        ExecutePreprocessor(timeout=600, kernel_name="python3").preprocess(notebook, {"metadata": {"path": folder}})
    notebook.cells.pop(0)
    for cell in notebook.cells:  # warnings name files of this machine; the notebooks print their verdicts
        cell["outputs"] = [out for out in cell.get("outputs", []) if out.get("name") != "stderr"]
    names = {"unique_key": path.stem, "output_files_dir": f"{path.stem}_files"}
    text, extra = MarkdownExporter().from_notebook_node(notebook, resources=names)
    for name, content in extra["outputs"].items():
        (FOLDER / name).parent.mkdir(exist_ok=True)
        (FOLDER / name).write_bytes(content)
    text += f"\n\n*This page is the notebook `docs/notebooks/{path.name}`, as it ran when the site was built.*\n"
    path.with_suffix(".md").write_text(text)
    print(f"{path.name}: {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    os.environ.update({"PYTHONHASHSEED": "0"} | settings(prepared(None)))  # the kernels inherit them
    chosen = [path for path in FOLDER.glob("*.ipynb") if path.stem in sys.argv[1:] or not sys.argv[1:]]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        # The longest first; the first that fails ends the build.
        list(pool.map(run, sorted(chosen, key=lambda path: path.stem, reverse=True)))
