"""Entry points: `python -m mirrorfeed.cli`, and `task` for wheel tasks of Databricks jobs."""

from __future__ import annotations

import sys

from mirrorfeed.api.errors import task_failed
from mirrorfeed.cli import main


def task() -> None:
    """Run the command in the parameters of a wheel task. Raises `task_failed` if the command fails.

    Returns on success instead of exiting, because a wheel task fails on any exit code, even 0.
    """
    try:
        main(prog_name="mirrorfeed")
    except SystemExit as ended:
        if ended.code:
            raise task_failed(arguments=sys.argv[1:], status=ended.code) from None


if __name__ == "__main__":
    main()
