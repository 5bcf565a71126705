"""`feed.setup`: checks of the setup, and the description of the publisher in the landing zone."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from mirrorfeed.api.results import PartnerFile, Result
from mirrorfeed.api.subject import Subject
from mirrorfeed.config.model import Config, zone_of
from mirrorfeed.landing.output_format import PARTNER_EVENTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorfeed.api import results
    from mirrorfeed.api.feed import Feed
    from mirrorfeed.api.go_live import Answer


class Setup(Subject):
    """Operations before the first publication: checks of the setup, and the description of the publisher.

    The checks write small files into the landing zone and delete them.
    """

    def __init__(self, feed: Feed, config: Config, spark: Callable[..., SparkSession]) -> None:
        super().__init__(config, spark)
        self._feed = feed

    def check(self) -> Result[results.Finding]:
        """Check the requirements of publishing, and create the ledger if it does not exist.

        Returns a finding for each requirement: permissions, credential, landing zone, network and every source.
        """
        from mirrorfeed.monitor.setup_checks import check_setup

        return Result(tuple(check_setup(self._spark(), self._current_config)))

    def check_platform(self) -> Result[results.Finding]:
        """Test how storage, Spark and network behave. The findings contain no names of tables, locations or people."""
        from mirrorfeed.monitor.setup_checks import check_platform

        return Result(tuple(check_platform(self._spark(), self._current_config)))

    def go_live(
        self, ask: Callable[[int, str], Answer] | None = None, checks: Collection[int] = ()
    ) -> Result[results.GoLiveCheck]:
        """Make the checks of the page "Go-live checklist" in order, or only the numbers `checks`. Publishes all tables.

        For a check that only a person can make, calls `ask` with its number and title. `ask` returns the result (`ok`,
        `wrong` or `not done`) and what the person saw. Without `ask`, the result of such a check is `not done`. The
        rows contain no names of tables.
        """
        from mirrorfeed.api.go_live import go_live

        return Result(go_live(self._feed, ask, checks))

    def partner(self, force: bool = False) -> Result[PartnerFile]:
        """Write the setting `partner`, which describes the publisher, to `_partnerEvents.json` in the landing zone.

        `publish` also writes this file if it does not exist. Returns the address of the file, and whether it was
        written. Returns no row if the configuration does not set `partner`. If the file exists with other content,
        `force` overwrites the file. Without `force`, other content raises `MirrorfeedError`.
        """
        from mirrorfeed.publish.table_log.metadata_files import write_partner_events

        if self._config.partner is None:
            return Result((), summary="The configuration does not set `partner`, so there is nothing to write.")
        zone = zone_of(self._config)
        written = write_partner_events(zone, self._config, force=force)
        return Result((PartnerFile(zone.address(PARTNER_EVENTS), written),))
