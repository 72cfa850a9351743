"""The `epf` command. Its libraries (typer, rich) come with `pip install "epfilter[cli]"`."""

import os
import sys


def main() -> None:
    """The entry point of the `epf` command."""
    _keep_compiled_programs()
    try:
        import typer  # noqa: F401  whether it is installed
    except ImportError:
        sys.exit('The epf command needs typer and rich: pip install "epfilter[cli]".')
    from epf.cli.app import app

    app()


def _keep_compiled_programs() -> None:
    """Find the programs that earlier commands compiled; `EPF_CACHE` names another folder, or is `off`.

    By the environment, which JAX reads when it is imported, later. Python's hashes are part of the programs (see
    `epf.cache`), so Python starts anew with fixed ones. A cache that the user has chosen for JAX stays.
    """
    chosen = os.environ.get("EPF_CACHE", "")
    if chosen == "off" or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    if "PYTHONHASHSEED" not in os.environ and os.name == "posix" and sys.executable:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | {"PYTHONHASHSEED": "0"})
    from epf.errors import EPFError
    from epf.storage._cache import prepared, settings

    try:
        os.environ.update(settings(prepared(chosen or None)))
    except EPFError as error:
        print(f"{error} This command compiles everything itself.", file=sys.stderr)
