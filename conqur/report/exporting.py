"""Everything on a page as files of their own, for papers and for programs."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from conqur._files import replacing
from conqur.report.charts import number
from conqur.report.exhibits import Estimate, Exhibit, shown
from conqur.report.figures import as_csv, as_latex, as_png, standalone
from conqur.report.tables import Cell


def export(
    exhibits: Sequence[Exhibit], folder: Path, *, warn: Callable[[str], None] = lambda words: None
) -> list[Path]:
    """Write tables as CSV and LaTeX, figures as SVG and PNG, and return where.

    Args:
        exhibits: of a page.
        folder: made if it is not there.
        warn: told in one line what cannot be written, if the pictures cannot.
    """
    files: dict[str, bytes] = {}
    for exhibit in exhibits:
        if exhibit.rows:
            files[f"{exhibit.key}.csv"] = as_csv(*exhibit.plain()).encode()
            files[f"{exhibit.key}.tex"] = _latex(exhibit).encode()
        for figure in exhibit.figures:
            name = exhibit.key if len(exhibit.figures) == 1 else f"{exhibit.key}-{figure.title}"
            name = re.sub(r"[^\w-]+", "-", name)
            files[f"{name}.svg"] = standalone(figure.svg, key=bool(exhibit.legend)).encode()
    try:
        drawn = {n: as_png(text.decode()) for n, text in files.items() if n.endswith(".svg")}
        files |= {name.replace(".svg", ".png"): picture for name, picture in drawn.items()}
    except (ImportError, RuntimeError) as error:
        warn(f"no pictures are written as PNG: {error}")
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        with replacing(folder / name, follow=False) as file:
            file.write(content)
    return [folder / name for name in files]


def _latex(exhibit: Exhibit) -> str:
    rows = [[_words(cell) for cell in row] for row in exhibit.rows]
    caption = f"{exhibit.title}. {exhibit.words}"
    return as_latex(exhibit.head, rows, caption=caption, label=f"tab:{exhibit.key}")


def _words(cell: Cell | Estimate) -> Cell:
    """A cell as one: an interval stands behind its number."""
    if not isinstance(cell, Estimate):
        return cell
    if cell.interval is None:
        return shown(cell)
    low, high = (number(end, 2) for end in cell.interval)
    return f"{shown(cell)} ({low} to {high})"
