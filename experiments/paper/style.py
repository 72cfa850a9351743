"""Style shared by all figures: widths, sizes and colours."""

from pathlib import Path
from typing import Any

# The palette of Okabe and Ito is safe for colour-blind readers. Dashes and markers differ too, for print in grey.
BLACK, BLUE, ORANGE, GREEN = "#000000", "#0072B2", "#D55E00", "#009E73"
PINK, AMBER, SKY, GREY = "#CC79A7", "#E69F00", "#56B4E9", "#777777"
PALETTE = (BLUE, ORANGE, GREEN, PINK, AMBER, SKY)
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (3, 1)))
MARKS = ("o", "s", "^", "D", "v", "P")
SEQUENCE = "cividis"  # readable with colour-vision deficiency

COLUMN, PAGE = 3.4, 7.0  # inches: one column, two columns
_STYLE: Any = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 6.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.linewidth": 0.6,
    "axes.titlelocation": "left",
    "lines.linewidth": 1.1,
    "lines.markersize": 3.5,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.constrained_layout.use": True,
    "pdf.fonttype": 42,  # text stays text
    "svg.hashsalt": "epf",
}


def style() -> Any:
    """A context manager with the style; global settings are restored afterwards."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt.rc_context(_STYLE)


def panels(rows: int, columns: int, width: float = PAGE, height: float | None = None, **options: Any) -> Any:
    """A figure and its panels, always as a two-dimensional array."""
    import matplotlib.pyplot as plt

    size = (width, height or 2.3 * rows)
    return plt.subplots(rows, columns, figsize=size, squeeze=False, **options)


def letter(axes: Any) -> None:
    """Put (a), (b), (c) before the panel titles."""
    for name, panel in zip("abcdefghij", axes, strict=False):
        panel.set_title(f"({name}) {panel.get_title(loc='left')}")


def save(figure: Any, path: Path) -> None:
    """Save as PNG and PDF without dates, so that the same numbers give the same files."""
    import matplotlib.pyplot as plt

    figure.savefig(path.with_suffix(".png"), dpi=200, metadata={"Software": None})
    figure.savefig(path.with_suffix(".pdf"), metadata={"CreationDate": None, "Creator": None, "Producer": None})
    plt.close(figure)
