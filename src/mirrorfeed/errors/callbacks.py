"""Functions that users pass, such as `on_done`. Their errors are reported, but never change a run."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import count
from typing import Any, TypeVar

from mirrorfeed.errors import MirrorfeedError, MirrorfeedWarning, first_line, problem

T = TypeVar("T")
_log = logging.getLogger(__name__)


@problem(
    MirrorfeedWarning,
    "MF1012",
    meaning=(
        "A function that you passed to a method, such as `on_done`, raised an error. The run continues. Only the"
        " first error of each function is reported."
    ),
)
def callback_failed(*, name: str, kind: str, reason: str) -> None:
    """The function `{name}` that you passed raised {kind}: {reason}. The run continued.

    Correct the function. To end a run early, return True from `stop`.
    """


def guard_callback(
    name: str, function: Callable[..., T] | None, on_problem: Callable[[MirrorfeedError], None], default: T
) -> Callable[..., T]:
    """Return a function that calls `function`, and returns `default` if it raises an error or is None.

    `on_problem` receives the first error, as `callback_failed`. Several threads can call the returned function. `name`
    is the name of the parameter that the user set.
    """
    if function is None:
        return lambda *_: default
    errors = count()  # `next` is atomic

    def call(*arguments: Any) -> T:
        try:
            return function(*arguments)
        except Exception as error:
            if next(errors) == 0:
                _log.warning("%s failed", name, exc_info=error)
                kind, reason = type(error).__name__, first_line(str(error))
                on_problem(callback_failed(name=name, kind=kind, reason=reason))
            return default

    return call
