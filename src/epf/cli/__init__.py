"""The `epf` command. Its libraries (typer, rich) come with `pip install "epfilter[cli]"`."""

import sys


def main() -> None:
    """The entry point of the `epf` command."""
    try:
        import typer  # noqa: F401  whether it is installed
    except ImportError:
        sys.exit('The epf command needs typer and rich: pip install "epfilter[cli]".')
    from epf.cli.app import app

    app()
