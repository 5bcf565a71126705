"""The command that says who publishes."""

from __future__ import annotations

import click

from mirrorfeed.cli.root import config_option, load_as_written, main, say, say_result


@main.command()
@click.option("--force", is_flag=True, help="Replace a file that says something else.")
@config_option
def partner(force: bool, path: str) -> None:
    """Write `partner` of the configuration into the landing zone; `publish` does it too, where no file is."""
    config = load_as_written(path)
    from mirrorfeed.config.landing_zone import zone_of
    from mirrorfeed.landing.partner import PARTNER_EVENTS
    from mirrorfeed.publish.partner import introduce

    if config.partner is None:
        say_result({"address": None, "written": False})
        say("The configuration has no `partner`; nothing was done.")
        return
    store = zone_of(config)
    written = introduce(store, config, force=force)
    say_result({"address": store.address(PARTNER_EVENTS), "written": written})
    say(f"{store.address(PARTNER_EVENTS)} {'was written' if written else 'says it already'}.")
