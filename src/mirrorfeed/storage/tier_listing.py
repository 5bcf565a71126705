"""Find files in the listings of an object storage, with few requests.

One request lists thousands of files, but a folder or table can contain many more files than are wanted. So a listing is
read only as long as it can save requests: first the listing of all folders, then one listing of each folder. At the
end, one request looks up each file that was not listed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from mirrorfeed.storage.tier_store import TierFacts

MAX_PARALLEL_REQUESTS = 16

Page = Mapping[str, TierFacts]
"""Facts of the files in one response of the storage, by file name. A name includes the folder."""
Pages = Callable[[str, str], Iterator[Page]]
"""Function that lists the files whose names start with its first argument. It sends one request for each page.

The second argument is the delimiter: "/" leaves out files in subfolders, and "" lists all files."""


def find_facts(names: Collection[str], pages: Pages) -> dict[str, TierFacts]:
    """Return the facts of the files in `names`, at least one name. Leaves out files that do not exist.

    Waits for at most about twice as many responses as the best of the three ways alone would need.
    """
    all_folders = pages(_common_prefix(names), "")
    found, remaining = _read(all_folders, names, len(_by_folder(names)) // MAX_PARALLEL_REQUESTS)

    def in_folder(wanted: set[str]) -> tuple[dict[str, TierFacts], set[str]]:
        return _read(pages(_common_prefix(wanted), "/"), wanted, len(wanted) - 1)

    def alone(name: str) -> dict[str, TierFacts]:
        return _read(pages(name, "/"), {name}, 1)[0]  # a name comes before all longer names that start with it

    with ThreadPoolExecutor(MAX_PARALLEL_REQUESTS) as threads:
        not_listed = set[str]()
        for facts, others in threads.map(in_folder, _by_folder(remaining)):
            found |= facts
            not_listed |= others
        for facts in threads.map(alone, not_listed):
            found |= facts
    return found


def _read(listing: Iterator[Page], wanted: Collection[str], limit: int) -> tuple[dict[str, TierFacts], set[str]]:
    """Read up to `limit` pages of a listing, until all files in `wanted` are found.

    Return the facts of these files, and the files that may be in later pages. If the listing ends, there are none.
    """
    found, remaining = dict[str, TierFacts](), set(wanted)
    for _ in range(limit):
        if not remaining:
            break
        if (page := next(listing, None)) is None:
            return found, set()
        found |= {name: page[name] for name in remaining & page.keys()}
        remaining -= page.keys()
    return found, remaining


def _by_folder(names: Collection[str]) -> Collection[set[str]]:
    folders: dict[str, set[str]] = {}
    for name in names:
        folders.setdefault(name.rpartition("/")[0], set()).add(name)
    return folders.values()


def _common_prefix(names: Collection[str]) -> str:
    first, last = min(names), max(names)
    end = next((i for i, letter in enumerate(first) if not last.startswith(letter, i)), len(first))
    return first[:end]
