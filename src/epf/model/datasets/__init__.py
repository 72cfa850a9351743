"""Real series with published answers, as pandas objects: `.attrs` says what each is, where it is from, and its licence.

The files lie beside this one: three lines of provenance, a heading, and one row per time.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

_PROVENANCE = ("what", "source", "licence")


def nile() -> "pd.Series":
    """Annual flow of the Nile at Aswan, 10^8 m^3, 1871 to 1970: 100 numbers.

    Examples:
        >>> epf.datasets.nile().head(2).tolist()
        [1120.0, 1160.0]
    """
    return _read("nile")["flow"]


def influenza() -> "pd.Series":
    """Boys in bed with influenza in an English boarding school of 763 boys, 22 January to 4 February 1978: 14 numbers.

    Examples:
        >>> int(epf.datasets.influenza().max())
        298
    """
    return _read("influenza")["in_bed"]


def lynx_hare() -> "pd.DataFrame":
    """Pelts of hares and lynxes of the Hudson's Bay Company, in thousands, 1900 to 1920: 21 rows, columns hare and lynx.

    Examples:
        >>> epf.datasets.lynx_hare().shape
        (21, 2)
    """
    return _read("lynx_hare")


def sunspots() -> "pd.Series":
    """Yearly mean sunspot numbers of Zurich, 1700 to 1987: 288 numbers.

    Examples:
        >>> len(epf.datasets.sunspots())
        288
    """
    return _read("sunspots")["sunspots"]


def sterling() -> "pd.Series":
    """Dollars for one pound sterling on every trading day from 2 January 1980 to 31 July 1981; the index counts the days.

    Examples:
        >>> epf.datasets.sterling().index[0]
        1
    """
    return _read("sterling")["rate"]


def _read(name: str) -> Any:
    """One of the files as a DataFrame of floats, on an index of dates where the first column has years or dates."""
    import pandas as pd

    path = Path(__file__).parent / f"{name}.csv"
    with path.open(encoding="utf-8") as file:
        said = dict(file.readline().removeprefix("# ").rstrip().split(": ", 1) for _ in _PROVENANCE)
        table = pd.read_csv(file, index_col=0).astype(float)
    if table.index.name in ("year", "date"):
        table.index = pd.DatetimeIndex(table.index.astype(str), name=table.index.name, freq="infer")
    table.attrs = {key: said[key] for key in _PROVENANCE}
    return table
