"""`ampdoctor formats`: the number formats, and what each means for gradients."""

from __future__ import annotations

import json
import math
from enum import Enum
from typing import Annotated

import typer

from ampdoctor.formats import FORMATS, NumberFormat
from ampdoctor.report.layout import Page
from ampdoctor.report.terminal import console, show


class TableFormat(str, Enum):
    """How the table is printed."""

    TEXT = "text"
    JSON = "json"


def formats(
    table_format: Annotated[TableFormat, typer.Option("--format", help="How to print the table.")] = TableFormat.TEXT,
) -> None:
    """Show the number formats and their limits."""
    to = console()
    if table_format is TableFormat.JSON:
        to.file.write(json.dumps([_entry(f) for f in FORMATS.values()], indent=2) + "\n")
    else:
        show(format_table(to.width), to)


def format_table(width: int) -> Page:
    """Return the table of limits, and below it what they mean."""
    page = Page(width)
    head = ("format", "bits", "max", "min normal", "smallest", "flushes at", "eps", "binades")
    rows = [head, *(_row(f) for f in FORMATS.values())]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    for number, row in enumerate(rows):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        page.line(line, style="" if number else "bold")
    page.blank()
    page.say("For gradients", style="bold")
    for number_format in FORMATS.values():
        page.say(number_format.for_gradients, label=f"{number_format.title:{widths[0]}}  ", label_style="bold")
    page.blank()
    page.say(
        "bits: exponent and mantissa. flushes at: magnitudes up to this become zero. binades: powers of two from the "
        "smallest number to the largest; gradients that span more fit at no loss scale.",
        style="dim",
    )
    return page


def _row(number_format: NumberFormat) -> tuple[str, ...]:
    stored = number_format.bytes is not None
    return (
        number_format.title,
        f"{number_format.exponent_bits}/{number_format.mantissa_bits}",
        f"{number_format.max:.5g}",
        _power(number_format.min_normal),
        _power(number_format.min_subnormal) if stored else "-",
        f"2^{number_format.flush_exponent}" if stored else "-",
        _power(number_format.eps),
        str(number_format.binades) if stored else "-",
    )


def _power(value: float) -> str:
    return f"2^{int(math.log2(value))}"


def _entry(number_format: NumberFormat) -> dict[str, object]:
    stored = number_format.bytes is not None
    return {
        "name": number_format.name,
        "title": number_format.title,
        "dtype": number_format.dtype,
        "bytes": number_format.bytes,
        "exponent_bits": number_format.exponent_bits,
        "mantissa_bits": number_format.mantissa_bits,
        "max": number_format.max,
        "min_normal": number_format.min_normal,
        "min_subnormal": number_format.min_subnormal if stored else None,
        "flush_exponent": number_format.flush_exponent if stored else None,
        "eps": number_format.eps,
        "has_inf": number_format.has_inf,
        "for_gradients": number_format.for_gradients,
    }
