"""A report as one page of HTML that needs nothing else: no network, no script, no other file.

Texts of the run may say anything: a rank's last words are whatever its script raised. So every text
is escaped, and the page itself forbids scripts and anything from outside.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from html import escape
from string import Template

from rich.table import Table
from rich.text import Text

from hvd_ft.reports.pieces import pieces_of
from hvd_ft.reports.plot import png, states_figure
from hvd_ft.reports.report import Report

_PAGE = Template("""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>$title</title>
<style>
:root { --text: #1c1e21; --page: #ffffff; --line: #d8dbe0; --head: #f3f4f6; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e4e6eb; --page: #16181c; --line: #3a3d44; --head: #23262c; }
}
body { color: var(--text); background: var(--page); font: 1rem/1.5 system-ui, sans-serif;
  max-width: 70rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
th, td { border: 1px solid var(--line); padding: .25rem .6rem; text-align: left; }
th { background: var(--head); }
.right { text-align: right; } .last td { border-bottom-width: 3px; }
img { background: #ffffff; border-radius: .4rem; width: 100%; min-width: 38rem; }
pre { background: var(--head); padding: .8rem; border-radius: .4rem; overflow-x: auto;
  overflow-wrap: normal; }
</style>
</head>
<body>
<h1>$title</h1>
$body
</body>
</html>
""")


def page_of(told: Report) -> str:
    """Returns the page: headline, tables, picture, last words and stacks.

    Args:
        told: The report.
    """
    head, *rest = pieces_of(told)
    picture = b64encode(png(states_figure(told.events, facts=told.facts))).decode("ascii")
    body = [
        _piece(head),
        '<h2>Each rank over time</h2>\n<div class="wide"><img alt="Each rank\'s state over time" '
        f'src="data:image/png;base64,{picture}"></div>',
        *map(_piece, rest),
        *_stacks(told),
    ]
    title = escape(f"Job {told.facts['job']}")
    return _PAGE.substitute(title=title, body="\n".join(body))


def _piece(piece: str | Table) -> str:
    return f"<p>{escape(piece)}</p>" if isinstance(piece, str) else _table(piece)


def _table(table: Table) -> str:
    columns = [(column.justify, [*map(_plain, column.cells)]) for column in table.columns]
    lines = [f"<h2>{escape(_plain(table.title or ''))}</h2>", '<div class="wide"><table>']
    if table.show_header:
        headers = ((column.justify, _plain(column.header)) for column in table.columns)
        lines.append(f"<tr>{_cells('th', headers)}</tr>")
    for number, row in enumerate(table.rows):
        cells = ((justify, texts[number]) for justify, texts in columns)
        last = ' class="last"' if row.end_section else ""
        lines.append(f"<tr{last}>{_cells('td', cells)}</tr>")
    return "\n".join([*lines, "</table></div>"])


def _cells(tag: str, cells: Iterable[tuple[str, str]]) -> str:
    right = ' class="right"'
    return "".join(
        f"<{tag}{right if justify == 'right' else ''}>{escape(text)}</{tag}>"
        for justify, text in cells
    )


def _plain(cell: object) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)


def _stacks(told: Report) -> list[str]:
    """Returns the stacks of workers that kept others waiting."""
    lines = []
    for stack in told.stacks:
        whose = f"Stacks of rank {stack.rank} (incarnation {stack.incarnation})"
        lines.append(f"<h2>{escape(whose)}</h2>\n<pre>{escape(stack.text)}</pre>")
    return lines
