"""`epf reproduce`: the paper's figures and claims, with their verdicts."""

from pathlib import Path

from tqdm import tqdm

from epf.errors import SettingError
from epf.reproduce.experiment import CHANGED, NOT, REPRODUCED
from epf.reproduce.run import JOBS, reproduce


def run(names: list[str], out: Path, seed: int, again: bool, page: Path | None, jobs: int | None, quiet: bool) -> None:
    """Make the experiments and say how they came out."""
    try:
        import matplotlib  # noqa: F401  only to see whether it is there
    except ImportError:
        raise SettingError('epf reproduce draws with matplotlib: pip install "epfilter[plots]".') from None
    show = False if quiet else None
    tell = (lambda line: None) if quiet else tqdm.write  # which leaves the bar whole
    found = reproduce(names, out, seed=seed, again=again, page_at=page, jobs=jobs or JOBS, show=show, tell=tell)
    verdicts = [one.verdict for findings in found.values() for one in findings]
    tell(", ".join(f"{verdicts.count(word)} {word}" for word in (REPRODUCED, CHANGED, NOT)) + f". Files: {out}")
