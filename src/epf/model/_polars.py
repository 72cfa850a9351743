"""Frames of polars, which have no index: the only column of dates, if there is one, says when each row was."""

from typing import Any


def date_column(values: Any) -> str | None:
    """Its name; None for anything else, and nothing is imported for data of other libraries."""
    if type(values).__name__ != "DataFrame" or not type(values).__module__.startswith("polars"):
        return None
    names = [name for name, kind in values.schema.items() if str(kind).startswith("Date")]  # Date and Datetime
    return names[0] if len(names) == 1 else None


def without_dates(values: Any) -> Any:
    """The numbers of such a frame; other data as they are."""
    name = date_column(values)
    return values if name is None else values.drop(name)
