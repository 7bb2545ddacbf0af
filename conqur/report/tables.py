"""Tables as files of their own: LaTeX and CSV."""

import csv
import io
import re
import unicodedata
from collections.abc import Sequence

from conqur.report.charts import number

Cell = str | int | float | None

_NUMBER = re.compile(r"[+−-]?\d(?:[\d\s.,%±×()\[\]+−–-]|to|e(?=[\d+-]))*")
_MINUS = re.compile(r"(?<![\w.-])-(?=\d)")
_LABEL = re.compile(r"[A-Za-z0-9:._-]+")

_GREEK = (
    *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"),
    *("lambda", "mu", "nu", "xi", "", "pi", "rho", "varsigma", "sigma", "tau", "upsilon", "phi"),
    *("chi", "psi", "omega"),
)
"""From α to ω; omicron has no command."""
_MATH = {
    **{chr(ord("α") + i): rf"\{name}" for i, name in enumerate(_GREEK) if name},
    **{letter: rf"\{unicodedata.name(letter).split()[-1].capitalize()}" for letter in "ΓΔΘΞΠΣΥΦΨΩ"},
    **{"Λ": r"\Lambda", "ϵ": r"\epsilon", "ε": r"\varepsilon", "µ": r"\mu", "ϕ": r"\phi"},
    **{"−": "-", "±": r"\pm", "×": r"\times", "·": r"\cdot", "≤": r"\leq", "≥": r"\geq"},
    **{"≠": r"\neq", "≈": r"\approx", "→": r"\to", "←": r"\leftarrow", "∞": r"\infty"},
    **{"∈": r"\in", "√": r"\surd", "∑": r"\sum", "°": r"^{\circ}", "′": "'"},
    **{digit: f"^{{{i}}}" for i, digit in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
    **{digit: f"_{{{i}}}" for i, digit in enumerate("₀₁₂₃₄₅₆₇₈₉")},
    **{"⁻": "^{-}", "ⁿ": "^{n}"},
}
_TEXT = {
    **{letter: f"\\{letter}" for letter in "&%_#${}"},
    **{"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "`": r"\textasciigrave{}"},
    **{"[": "{[}", "]": "{]}", "*": "{*}"},  # after the end of a row, they would be read as its
    **{"–": r"\textendash{}", "—": r"\textemdash{}", "…": r"\ldots{}", "‘": r"\textquoteleft{}"},
    **{"’": "'", "“": r"\textquotedblleft{}", "”": r"\textquotedblright{}"},
    **{"\u2009": r"\,", "\u202f": r"\,", "ß": r"{\ss}", "æ": r"{\ae}", "Æ": r"{\AE}"},
    **{"œ": r"{\oe}", "Œ": r"{\OE}", "ø": r"{\o}", "Ø": r"{\O}", "ł": r"{\l}", "Ł": r"{\L}"},
    **{"\u00a0": "~", "ı": r"{\i}", "⁄": "/"},
    **dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΧο", "ABEZHIKMNOPTXo", strict=True)),  # the same shapes
}
_ACCENTS = {
    **{"\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0306": "u"},
    **{"\u0307": ".", "\u0308": '"', "\u030a": "r", "\u030b": "H", "\u030c": "v", "\u0327": "c"},
    **{"\u0323": "d", "\u0331": "b"},
}


def as_latex(
    head: Sequence[str], rows: Sequence[Sequence[Cell]], *, caption: str, label: str
) -> str:
    """A table for LaTeX, with the package booktabs; columns of numbers are set to the right.

    Args:
        head: what the columns are called.
        rows: words, which may hold anything, and numbers, which `conqur.report.number` writes.
        caption: what the table shows.
        label: what it is referred to by, such as "tab:scores".
    """
    if not _LABEL.fullmatch(label):
        raise ValueError(f"label must be of letters, digits and any of :._-, got {label!r}")
    written = [[_words(cell) for cell in row] for row in rows]
    _check_widths(head, rows)
    columns = zip(*written, strict=True) if written else [()] * len(head)
    sides = "".join("r" if _are_numbers(column) else "l" for column in columns)
    lines = [" & ".join(map(_escaped, row)) + r" \\" for row in (head, *written)]
    return "\n".join(
        [
            *(r"\begin{table}", r"\centering", rf"\caption{{{_escaped(caption)}}}"),
            *(rf"\label{{{label}}}", rf"\begin{{tabular}}{{{sides}}}", r"\toprule", lines[0]),
            *(r"\midrule", *lines[1:], r"\bottomrule", r"\end{tabular}", r"\end{table}", ""),
        ]
    )


def as_csv(head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A table as CSV; numbers keep all of their digits, and what is None is empty."""
    _check_widths(head, rows)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in (head, *rows):
        writer.writerow([_one_kind(cell) if isinstance(cell, str) else cell for cell in row])
    return text.getvalue()


def _check_widths(head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    for i, row in enumerate(rows):
        if len(row) != len(head):
            raise ValueError(
                f"rows must have {len(head)} cells as the head, row {i} has {len(row)}"
            )


def _one_kind(text: str) -> str:
    """Words with one kind of line breaks: not every version of Python quotes all of them."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _words(cell: Cell) -> str:
    if isinstance(cell, bool | str):
        return str(cell)
    return "–" if cell is None else number(cell)


def _are_numbers(column: Sequence[str]) -> bool:
    known = [cell for cell in column if cell.strip() not in ("", "-", "–", "—", "nan", "inf")]
    return bool(known) and all(_NUMBER.fullmatch(cell.strip()) for cell in known)


def _escaped(text: str) -> str:
    """Words as LaTeX reads them, all of it ASCII."""
    line = re.sub(r"[^\S\xa0\u2009\u202f]+", " ", unicodedata.normalize("NFC", text)).strip(" ")
    found = "".join(map(_letter, _MINUS.sub("−", line)))
    return re.sub(r"([-',])(?=\1)", r"\1{}", found)  # two of them would be read as another sign


def _letter(letter: str) -> str:
    if letter in _TEXT:
        return _TEXT[letter]
    if letter in _MATH:
        return f"${_MATH[letter]}$"
    if letter.isascii():
        return letter if letter.isprintable() else ""
    base, *marks = list(unicodedata.normalize("NFD", letter))
    if marks and base.isascii() and all(mark in _ACCENTS for mark in marks):
        found = _letter(base)
        for mark in marks:
            found = f"\\{_ACCENTS[mark]}{{{found}}}"
        return found
    alike = unicodedata.normalize("NFKC", letter)
    if alike != letter:
        return "".join(map(_letter, alike))
    if unicodedata.category(letter) in ("Cc", "Cf"):  # nothing to be seen
        return ""
    return f"{{[}}U+{ord(letter):04X}{{]}}"
