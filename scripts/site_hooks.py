"""What `make docs` changes in pages that are made from code."""

import re

from hvd_ft.worker import snapshot_interval

_DEFAULTS = {
    name: value
    for name, value in vars(snapshot_interval).items()
    if name.startswith("DEFAULT_") and isinstance(value, int | float)
}


def on_page_content(html: str, **_: object) -> str:
    """Puts values in place of the names of constants that are defaults of arguments.

    Args:
        html: of a page.
    """
    for name, value in _DEFAULTS.items():
        html = re.sub(rf"\b{name}\b", f"{value:g}", html)
    return html
