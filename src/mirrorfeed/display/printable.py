"""Text from outside as one line that is safe to show: on a terminal, on a page, in a log, in a message.

Names, values and responses may hold characters that move the cursor, start a line or reverse the order of others.
Each becomes an escape that can be seen, as in Python: `\\x1b`, `\\n`, `\\u202e`.
"""

from __future__ import annotations

import html
import shlex
import unicodedata

_ESCAPED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories: control and format characters, which include those for the direction of text, surrogates, and
the separators of lines and paragraphs."""


def printable(text: str, longest: int | None = None) -> str:
    """Return the text as one line without control and format characters, cut to `longest` characters."""
    shown = text if text.isprintable() else "".join(map(_escaped, text))
    return shown if longest is None or len(shown) <= longest else f"{shown[: longest - 1]}…"


def printable_block(text: str) -> str:
    """Return lines of others, such as a traceback, indented: none of them looks like a line of ours."""
    return "\n".join(f"  {printable(line)}" for line in text.splitlines())


def escape_html(text: str) -> str:
    """Return the text for a page, without markup."""
    return html.escape(printable(text))


def is_escaped(character: str) -> bool:
    """Whether `printable` shows an escape instead of this character."""
    return unicodedata.category(character) in _ESCAPED


def shell_argument(text: str) -> str:
    """Return the text as one argument of a command that people paste into a shell."""
    if printable(text) != text:
        escaped = printable(text.replace("\\", "\\\\").replace("'", "\\'"))
        return f"$'{escaped}'"
    # A condition holds texts in single quotes, so it is easier to read between double quotes.
    if "'" in text and not set('"$`\\!').intersection(text):
        return f'"{text}"'
    return shlex.quote(text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode() if is_escaped(character) else character
