"""The numbers in Prometheus' text format (exposition format 0.0.4)."""

from typing import Any

_ONE = (  # name, kind, what it is, where it is found
    ("epf_observations_total", "counter", "Observations taken in.", "t"),
    ("epf_surprises_total", "counter", "Observations far from what was forecast.", "surprises"),
    ("epf_updates_per_second", "gauge", "Updates per second, over the last seconds.", "per_second"),
    ("epf_update_seconds", "gauge", "Seconds of an update, over the last ones.", "seconds"),
    ("epf_effective_particles", "gauge", "Effective sample size.", "ess"),
    ("epf_log_evidence", "gauge", "Log of the marginal likelihood of all observations.", "log_evidence"),
    ("epf_series", "gauge", "Series of the panel.", "series"),
    ("epf_series_doubtful", "gauge", "Series whose verdict is doubtful.", "doubtful"),
    ("epf_series_not_to_trust", "gauge", "Series whose verdict is: do not trust.", "not_to_trust"),
    ("epf_last_post_timestamp_seconds", "gauge", "When these numbers were made.", "clock"),
)
_EACH = (
    ("epf_parameter_mean", "Posterior mean.", "mean"),
    ("epf_parameter_sd", "Posterior standard deviation.", "sd"),
    ("epf_parameter_error_of_mean", "Certificate: error of the mean, in posterior sds.", "error_of_mean"),
    ("epf_parameter_error_of_sd", "Certificate: relative error of the sd.", "error_of_sd"),
)


def metrics(numbers: dict[str, Any]) -> str:
    """What is known; a number that is not there is left out."""
    lines: list[str] = []

    def add(name: str, kind: str, help_: str, values: list[tuple[str, Any]]) -> None:
        found = [f"{name}{labels} {value!r}" for labels, value in values if value is not None]
        if found:
            lines.extend([f"# HELP {name} {help_}", f"# TYPE {name} {kind}", *found])

    for name, kind, help_, key in _ONE:
        add(name, kind, help_, [("", numbers.get(key))])
    level = numbers.get("verdict", {}).get("level")
    add("epf_verdict", "gauge", "0 good, 1 doubtful, 2 do not trust.", [("", level)])
    parameters = [(f'{{parameter="{_escaped(p["label"])}"}}', p) for p in numbers.get("parameters", ())]
    for name, help_, key in _EACH:
        add(name, "gauge", help_, [(labels, p.get(key)) for labels, p in parameters])
    return "\n".join(lines) + "\n"


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
