"""Remove secrets from third-party text, and escape control characters in all text, before it is shown or stored.

The process remembers the secrets and tokens that it sends, because responses, exceptions of libraries and their log
lines may repeat them. Other tokens are recognized by their form.
"""

from __future__ import annotations

import base64
import html
import json
import logging
import re
import shlex
import sys
import unicodedata
from collections import OrderedDict
from collections.abc import Iterator
from threading import Lock
from types import ModuleType
from typing import cast
from urllib.parse import quote, quote_plus, unquote, unquote_plus, urlsplit

HIDDEN = "(not shown)"
_MAX_SECRETS = 100
"""Maximum number of remembered secrets. The least recently used is forgotten, because tokens change every hour."""
_MIN_SECRET_LENGTH = 8
"""Minimum length of a remembered secret. Shorter texts are parts of ordinary words."""
_PREFIX_LENGTH = 16
"""Number of first characters that identify a secret, because a response may cut off the rest."""
_MIN_PART_LENGTH = 12
"""Minimum length of a part of a URL to hide as a secret. The part must also contain letters and digits."""
_MIN_PEER_PART_LENGTH = 6
"""Length of the shortest part of a secret to search for in a response of the service that received the secret."""
_TO_END_OF_WORD = r"""[^\s"'<>]*"""
_KNOWN_FORMS = (
    (re.compile(r"\beyJ[\w-]{8,}(?:\.[\w-]+){0,4}|\bZXlK[\w+/-]{16,}=*"), HIDDEN),
    (re.compile(r"\b(bearer)(?:\s|%20|\+)+(?=[a-z._~+/%=-]*\d)[\w.~+/%=-]{8,}", re.IGNORECASE), rf"\1 {HIDDEN}"),
    (
        re.compile(
            r"\b(sig|client_secret|access_token|refresh_token|AccountKey)((?:=|%3d|\"\s*:\s*\"))[^\s\"'&;<>()]+",
            re.IGNORECASE,
        ),
        rf"\1\2{HIDDEN}",
    ),
)
_LOGGERS = frozenset({"mirrorfeed", "azure", "msal", "urllib3", "requests", "databricks"})
_SEPARATORS = re.compile(r"[/?&=]")
_RUN = re.compile(rf"[0-9A-Za-z]{{{_MIN_PEER_PART_LENGTH},}}")


class _Memory(ModuleType):
    """Secrets of this process, each with the pattern that finds it. The last used secret is at the end."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.lock = Lock()
        self.patterns: OrderedDict[str, re.Pattern[str]] = OrderedDict()
        self.filters_logs = False


def remember(*secrets: str) -> None:
    """Hide `secrets` of at least 8 characters in the results of `redact` and in logs from now on."""
    filter_logs()
    memory = _memory()
    with memory.lock:
        for secret in secrets:
            if len(secret) >= _MIN_SECRET_LENGTH:
                if secret not in memory.patterns:
                    memory.patterns[secret] = _pattern(secret)
                memory.patterns.move_to_end(secret)
        while len(memory.patterns) > _MAX_SECRETS:
            memory.patterns.popitem(last=False)


def redact(text: str) -> str:
    """Return the text with "(not shown)" in place of likely tokens and of the secrets passed to `remember`."""
    memory = _memory()
    with memory.lock:
        patterns = tuple(memory.patterns.values())
    for pattern in patterns:
        text = pattern.sub(HIDDEN, text)
    for pattern, shown in _KNOWN_FORMS:
        text = pattern.sub(shown, text)
    return text


def redact_answer(text: str, *secrets: str) -> str:
    """Return `text`, the response of a service, without secrets.

    If the response contains one of `secrets` or a part of one of them, the result is only "(not shown)". Otherwise, the
    result is the same as the result of `redact`.
    """
    parts = {part for secret in secrets for part in _SEPARATORS.split(secret) if len(part) >= _MIN_PEER_PART_LENGTH}
    hidden = {form for part in parts.union(secrets) for form in _decoded(part)}
    hidden |= {run for form in hidden for run in _RUN.findall(form)}
    forms = {*_decoded(text), html.unescape(text)}
    return HIDDEN if any(part and part in form for part in hidden for form in forms) else redact(text)


def _decoded(text: str) -> set[str]:
    return {text, unquote(text), unquote_plus(text)}


def _memory() -> _Memory:
    # Not a global of this module: a task that contains the code of the package also contains its globals, so secrets
    # would be in the plan and in Spark's event log.
    name = "_mirrorfeed_redact"
    memory = sys.modules.get(name) or sys.modules.setdefault(name, _Memory(name))
    return cast(_Memory, memory)


def _pattern(secret: str) -> re.Pattern[str]:
    forms = {form for text in _texts(secret) for form in _forms(text) if len(form) >= _MIN_SECRET_LENGTH}
    longest_first = sorted(forms, key=lambda form: (-len(form), form))
    patterns = [re.escape(form) for form in longest_first]
    cut = [re.escape(form[:_PREFIX_LENGTH]) + _TO_END_OF_WORD for form in longest_first if len(form) > _PREFIX_LENGTH]
    return re.compile("|".join([*patterns, *dict.fromkeys(cut)]) or r"(?!)", re.IGNORECASE)


def _texts(secret: str) -> Iterator[str]:
    """Yield the texts to hide. If `secret` is a URL, yield its path and query as one text, and each part of path and
    query that can be a secret, but not the host. Otherwise, yield `secret` itself."""
    if "://" not in secret:
        yield secret
        return
    try:
        address = urlsplit(secret)
    except ValueError:
        yield secret
        return
    target = f"{address.path}?{address.query}" if address.query else address.path
    for text in {target, unquote(target)}:
        yield text
        for part in _SEPARATORS.split(text):
            if len(part) >= _MIN_PART_LENGTH and re.search(r"\d", part) and re.search(r"[A-Za-z]", part):
                yield part


def _forms(text: str) -> Iterator[str]:
    encoded = text.encode("utf-8", "surrogatepass")
    for plain in (text, quote(encoded, safe=""), quote_plus(encoded), html.escape(text), json.dumps(text)[1:-1]):
        yield plain
        yield plain[::-1]
    yield encoded.hex()
    for offset in range(3):  # base64 encodes three bytes together, and the secret can start at each of them
        letters = base64.b64encode(bytes(offset) + encoded).decode().rstrip("=")
        first = (offset * 8 + 5) // 6
        last = len(letters) if (offset + len(encoded)) % 3 == 0 else -1
        yield letters[first:last]
        yield letters[first:last].translate(str.maketrans("+/", "-_"))


def filter_logs() -> None:
    """Hide secrets and escape line breaks in all later log lines of mirrorfeed and its HTTP clients."""
    memory = _memory()
    with memory.lock:
        if memory.filters_logs:
            return
        memory.filters_logs = True
    create, formatter = logging.getLogRecordFactory(), logging.Formatter()

    def create_record(*args: object, **kwargs: object) -> logging.LogRecord:
        record = create(*args, **kwargs)
        if record.name.partition(".")[0] not in _LOGGERS:
            return record
        try:
            message = record.getMessage()
        except (TypeError, ValueError):  # the handler reports the error
            return record
        if (shown := printable(redact(message))) != message:
            record.msg, record.args = shown, None
        if record.exc_info and record.exc_info[0]:
            record.exc_text = printable_block(redact(formatter.formatException(record.exc_info)))
        return record

    # A filter of a logger does not process the records of child loggers, and handlers belong to the application.
    logging.setLogRecordFactory(create_record)


_ESCAPED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories to escape: control and format characters, surrogates, line and paragraph separators."""


def printable(text: str, longest: int | None = None) -> str:
    """Return the text as one line, with control and format characters escaped, cut to `longest` characters."""
    shown = text if text.isprintable() else "".join(map(_escaped, text))
    return shown if longest is None or len(shown) <= longest else f"{shown[: longest - 1]}…"


def printable_block(text: str) -> str:
    """Escape and indent third-party text, such as a traceback, so that no line looks like a message of mirrorfeed."""
    return "\n".join(f"  {printable(line)}" for line in text.splitlines())


def escape_html(text: str) -> str:
    """Return the text with HTML markup and control characters escaped."""
    return html.escape(printable(text))


def is_escaped(character: str) -> bool:
    """Return whether a character, such as a control character, must be shown as an escape sequence."""
    return unicodedata.category(character) in _ESCAPED


def shell_argument(text: str) -> str:
    """Return the text, quoted if necessary, as one argument of a command that people paste into a shell."""
    if printable(text) != text:
        escaped = printable(text.replace("\\", "\\\\").replace("'", "\\'"))
        return f"$'{escaped}'"
    # A condition contains texts in single quotes, so double quotes around it are easier to read.
    if "'" in text and not set('"$`\\!').intersection(text):
        return f'"{text}"'
    return shlex.quote(text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode() if is_escaped(character) else character
