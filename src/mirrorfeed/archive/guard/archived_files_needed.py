"""Archived files that cannot be read now, and the error that says so before anything is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirrorfeed.archive.errors import amount
from mirrorfeed.archive.file_index.log_file import LogFile
from mirrorfeed.display.humanize import a_few
from mirrorfeed.display.printable import shell_argument
from mirrorfeed.errors import Terminal

if TYPE_CHECKING:
    from mirrorfeed.storage.tiers import TierStore


def blocked_among(archived: Sequence[LogFile], tiers: TierStore | None) -> list[LogFile]:
    """Those that cannot be read now. Every one is looked at, with its deletion vector: a sample tells nothing of the
    others. Without a way to look, none can."""
    if tiers is None or not archived:
        return list(archived)
    found = tiers.look(sorted({uri for file in archived for uri in (file.uri, file.vector) if uri}))
    readable = {uri for uri, tier in found.items() if tier.is_readable}
    return [file for file in archived if file.uri not in readable or (file.vector and file.vector not in readable)]


class ArchivedFilesNeeded(Terminal):
    """The answer needs files that lie in the archive tier, where they cannot be read. This was found before anything
    was read.

    To do: Bring them back with `mirrorfeed archive plan` and `mirrorfeed archive restore`, or ask for what needs no
    archived file: the message has the whole command.
    """

    code = "MF5001"

    def __init__(
        self,
        what: str,
        table: str,
        version: int,
        where: str | None,
        files: Sequence[LogFile],
        feed_from: int | None = None,
    ) -> None:
        self.asked, self.table, self.version, self.where, self.files = what, table, version, where, tuple(files)
        self.feed_from = feed_from

    def what(self) -> str:
        named = a_few([file.uri for file in self.files])
        return (
            f"{self.asked} of {self.table} at version {self.version} needs {amount(self.files)} that"
            f" {'is' if len(self.files) == 1 else 'are'} in the archive: {named}. Nothing was read."
        )

    def next(self) -> str:
        asked = f" --where {shell_argument(self.where)}" if self.where else ""
        if self.feed_from is not None:
            asked = f" --feed-from {self.feed_from} --feed-to {self.version}"
        return (
            f"Bring them back with `mirrorfeed archive plan {shell_argument(self.table)}{asked} --to PLAN` and"
            " `mirrorfeed archive"
            " restore PLAN`, or ask for what needs no archived file."
        )
