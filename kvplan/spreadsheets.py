"""Cells of a CSV file that a spreadsheet shows and does not run.

Source: OWASP, CSV injection: a text that begins with one of these signs is a formula to Excel, LibreOffice and Sheets.
"""

FORMULA = ("=", "+", "-", "@", "\t", "\r")


def cell(value):
    """The value as it stands, but for a text that a spreadsheet would run: an apostrophe makes it a text there too.

    >>> cell("=1+1"), cell("@a"), cell("-3.5"), cell(-3.5), cell("on demand")
    ("'=1+1", "'@a", '-3.5', -3.5, 'on demand')
    """
    if isinstance(value, str) and value.startswith(FORMULA) and not _is_number(value):
        return f"'{value}"
    return value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
