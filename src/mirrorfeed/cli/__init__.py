"""Commands: each one parses its arguments and calls one method of `Feed`. `main` shows the result."""

from importlib import import_module

try:
    from mirrorfeed.cli.main import main

    for _commands in ["archive", "check", "publish"]:
        import_module(f"{__name__}.{_commands}")
except KeyboardInterrupt:
    raise SystemExit("Interrupted.") from None

__all__ = ["main"]
