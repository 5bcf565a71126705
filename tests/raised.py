"""Expect an error of a class, or an error that a function with the decorator `problem` returns."""

from __future__ import annotations

from typing import Any

import pytest

from mirrorfeed.errors import ErrorFunction

Expected = type[Exception] | ErrorFunction


def raises(expected: Expected, match: str | None = None) -> Any:
    """Return `pytest.raises` for an exception class, or for an error with the code of a problem."""
    if isinstance(expected, ErrorFunction):
        return pytest.raises(expected.kind, match=match, check=expected.matches)
    return pytest.raises(expected, match=match)


def is_error(error: object, expected: Expected) -> bool:
    return expected.matches(error) if isinstance(expected, ErrorFunction) else type(error) is expected
