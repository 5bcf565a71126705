"""Looks at a landing zone, of any publisher, and has it judged. Reads only; nothing here needs Spark."""

from mirrorfeed.inspect.look import Report, lint

__all__ = ["Report", "lint"]
