"""Draws `docs/architecture.png` from the imports that are really in the code.

    python docs/draw_imports.py

Above, a box is a room with its number of modules, and an arrow points from a room to one that it imports. Arrows that
follow from others are left out: if `run` imports `results` and `results` imports `storage`, no arrow leads from `run` to
`storage`. Below, all imports are counted. Rooms lie in the layers of the contract in `pyproject.toml`, so every arrow
points down; one that does not is drawn in red, and the script fails.
"""

import sys
import tomllib
from collections import Counter
from pathlib import Path

import grimp
import matplotlib
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

HERE = Path(__file__).parent
ANSWERS, ALGORITHMS, THETA, MODEL, TOOLS = "#e8d9f3", "#cfe3f7", "#d3efd9", "#fbe8c8", "#eeeeee"
ROOMS = {  # place along the layer, colour, purpose
    "cli": (0.0, ANSWERS, "the epf command"),
    "run": (0.0, ANSWERS, "fit, stream, compare, smooth"),
    "results": (0.0, ANSWERS, "answers, verdict, plots"),
    "storage": (0.0, ANSWERS, "files: written whole or not at all"),
    "offline": (0.0, ALGORITHMS, "methods for a whole series"),
    "filters": (0.0, ALGORITHMS, "online methods, one per file"),
    "statistics": (0.5, THETA, "p(θ | path) in a fixed size"),
    "smc": (-1.0, ALGORITHMS, "weights, resampling, proposals"),
    "posterior": (0.0, THETA, "what is known of θ; samplers"),
    "polynomial": (1.0, THETA, "functions of θ"),
    "model": (-0.5, MODEL, "laws, parameters, zoo"),
    "numerics": (0.75, TOOLS, "keys, linear algebra, sums"),
    "errors": (-0.5, TOOLS, "what a user can get wrong"),
}
WIDTH, HEIGHT, COLUMN, ROW = 3.55, 0.84, 3.75, 1.26  # of a box; from column to column and from layer to layer
INK, WRONG = "#37474f", "#c62828"


def layers() -> list[list[str]]:
    """The rooms from the top to the bottom, as the import contract lists them."""
    settings = tomllib.loads((HERE.parent / "pyproject.toml").read_text())
    (contract,) = (one for one in settings["tool"]["importlinter"]["contracts"] if one["type"] == "layers")
    return [[room.strip() for room in layer.split("|")] for layer in contract["layers"]]


def count_imports() -> tuple[Counter[str], Counter[tuple[str, str]]]:
    """How many modules each room has, and how many imports lead from one room to another."""
    graph = grimp.build_graph("epf", cache_dir=None)
    modules: Counter[str] = Counter()
    imports: Counter[tuple[str, str]] = Counter()
    for module in sorted(graph.modules - {"epf"}):  # the package itself only re-exports
        room = module.split(".")[1]
        modules[room] += 1
        for imported in graph.find_modules_directly_imported_by(module) - {"epf"}:
            imports[room, imported.split(".")[1]] += imported.split(".")[1] != room
    return modules, +imports


def not_implied(imports: Counter[tuple[str, str]]) -> set[tuple[str, str]]:
    """The imports that do not follow from chains of others (the transitive reduction)."""

    def reach(room: str, seen: frozenset[str] = frozenset()) -> set[str]:
        direct = {t for s, t in imports if s == room} - seen
        return direct.union(*(reach(t, seen | direct) for t in direct))

    return {(s, t) for s, t in imports if not any(t in reach(via) for f, via in imports if f == s and via != t)}


def draw_rooms(axes: Axes, rows: list[list[str]], modules: Counter[str], arrows: set[tuple[str, str]]) -> None:
    """The boxes, and arrows from the lower edge of one to the upper edge of another."""
    level = {room: i for i, row in enumerate(rows) for room in row}
    at = {room: (ROOMS[room][0] * COLUMN, -level[room] * ROW) for room in level}
    for source, target in sorted(arrows):
        (x0, y0), (x1, y1) = at[source], at[target]
        lean = 0.45 * max(-1.0, min(1.0, x1 - x0))  # arrows to one side start and end on that side
        start, end = (x0 + lean, y0 - HEIGHT / 2), (x1 - lean, y1 + HEIGHT / 2)
        colour = INK if level[source] < level[target] else WRONG
        axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=15, color=colour, lw=1.6))
    for room, (x, y) in at.items():
        box = FancyBboxPatch((x - WIDTH / 2, y - HEIGHT / 2), WIDTH, HEIGHT, boxstyle="round,pad=0,rounding_size=0.13")
        box.set(facecolor=ROOMS[room][1], edgecolor=INK, linewidth=1.1, zorder=3)
        axes.add_patch(box)
        axes.text(x - 1.62, y + 0.17, room, ha="left", va="center", fontsize=13, weight="bold", zorder=4)
        count = f"{modules[room]} module{'s' if modules[room] > 1 else ''}"
        axes.text(x + 1.62, y + 0.17, count, ha="right", va="center", fontsize=9.5, color=INK, zorder=4)
        axes.text(x - 1.62, y - 0.2, ROOMS[room][2], ha="left", va="center", fontsize=9.5, zorder=4)
    axes.set_xlim(-COLUMN - WIDTH / 2 - 0.1, COLUMN + WIDTH / 2 + 0.1)
    axes.set_ylim(-(len(rows) - 1) * ROW - HEIGHT / 2 - 0.1, HEIGHT / 2 + 0.1)
    axes.axis("off")


def draw_counts(axes: Axes, rooms: list[str], imports: Counter[tuple[str, str]], arrows: set[tuple[str, str]]) -> None:
    """A table: how many times the room of a row imports the room of a column; a frame where an arrow is drawn above."""
    most = max(imports.values())
    for (source, target), number in imports.items():
        i, j = rooms.index(source), rooms.index(target)
        cell = Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor=INK if j > i else WRONG, alpha=0.12 + 0.55 * number / most)
        axes.add_patch(cell)
        if (source, target) in arrows:
            axes.add_patch(Rectangle((j - 0.46, i - 0.46), 0.92, 0.92, fill=False, edgecolor=INK, linewidth=1.6))
        axes.text(j, i, str(number), ha="center", va="center", fontsize=9.5)
    for i, room in enumerate(rooms):
        axes.add_patch(Rectangle((i - 0.5, i - 0.5), 1, 1, facecolor=ROOMS[room][1]))
    axes.set(xlim=(-0.5, len(rooms) - 0.5), ylim=(len(rooms) - 0.5, -0.5))
    axes.set_xticks(range(len(rooms)), rooms, rotation=60, ha="left", rotation_mode="anchor", fontsize=10)
    axes.set_yticks(range(len(rooms)), rooms, fontsize=10)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("How many times the room on the left imports the room above", fontsize=10.5, labelpad=8)


def draw(path: Path) -> bool:
    """Draw the picture, and say whether every import points down."""
    rows = layers()
    level = {room: i for i, row in enumerate(rows) for room in row}
    modules, imports = count_imports()
    upward = {pair for pair in imports if level[pair[0]] >= level[pair[1]]}
    arrows = not_implied(imports) | upward
    figure = plt.figure(figsize=(7.2, 13.6))
    draw_rooms(figure.add_axes((0.0, 0.41, 1.0, 0.585)), rows, modules, arrows)
    draw_counts(figure.add_axes((0.14, 0.03, 0.78, 0.315)), list(ROOMS), imports, arrows)
    figure.savefig(path, dpi=150, metadata={"Software": None})  # the same imports give the same file
    plt.close(figure)
    return not upward


if __name__ == "__main__":
    matplotlib.use("Agg")
    sys.exit(
        0 if draw(HERE / "architecture.png") else "An import points up: see the red arrows in docs/architecture.png."
    )
