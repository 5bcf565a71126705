"""Files found in listings with few requests, in a storage that counts its requests."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from hypothesis import given
from hypothesis import strategies as st

from mirrorfeed.storage.tier_listing import MAX_PARALLEL_REQUESTS, Page, find_facts
from mirrorfeed.storage.tier_store import Tier, TierFacts


class Storage:
    def __init__(self, names: Collection[str], page: int) -> None:
        self.names, self.page = sorted(names), page
        self.requests: list[tuple[str, str]] = []
        """Prefix and delimiter of each request."""

    def pages(self, prefix: str, delimiter: str) -> Iterator[Page]:
        names = [name for name in self.names if name.startswith(prefix)]
        if delimiter:
            names = sorted({name[: name.find(delimiter, len(prefix)) + 1] or name for name in names})
        for start in range(0, max(1, len(names)), self.page):
            self.requests.append((prefix, delimiter))
            page = names[start : start + self.page]
            yield {name: TierFacts(Tier.COLD, self.names.index(name)) for name in page if name in self.names}

    def find(self, wanted: Collection[str]) -> int:
        """Compare the facts of `wanted` with the truth, and return the number of requests."""
        self.requests = []
        truth = {name: TierFacts(Tier.COLD, self.names.index(name)) for name in {*wanted} & {*self.names}}
        assert find_facts({*wanted}, self.pages) == truth
        return len(self.requests)


def table(days: int, files: int) -> list[str]:
    return [f"t/day={day:04}/part-{file:05}" for day in range(days) for file in range(files)]


def test_distant_files_need_one_request_each() -> None:
    names = table(500, 20)
    assert Storage(names, 100).find([names[0], names[-1]]) == 2


def test_distant_partitions_need_one_listing_each() -> None:
    names = table(100, 50)
    storage = Storage(names, 50)
    assert storage.find([*names[:50], *names[-50:]]) == 2
    assert sorted(storage.requests) == [("t/day=0000/part-000", "/"), ("t/day=0099/part-000", "/")]


def test_many_small_partitions_are_listed_together() -> None:
    storage = Storage(table(1000, 3), 500)
    assert storage.find(storage.names) == 6
    assert {*storage.requests} == {("t/day=0", "")}


def test_few_files_of_a_large_folder_do_not_need_its_whole_listing() -> None:
    storage = Storage(table(1, 10_000), 100)
    assert storage.find(storage.names[5000::2000]) <= 5


def test_subfolders_of_a_folder_are_not_listed() -> None:
    storage = Storage([*table(100, 50), "t/deletion_vector_1.bin", "t/deletion_vector_2.bin", "t/x.bin"], 200)
    assert storage.find(storage.names[-3:]) == 1


def test_missing_files_are_left_out() -> None:
    storage = Storage(table(3, 3), 5)
    assert storage.find(["t/day=0000/part-00000", "t/day=0000/gone", "t/gone", "gone"]) == 4


def test_files_of_a_deleted_table_are_not_looked_up_one_by_one() -> None:
    assert Storage(["other/part-0"], 100).find(table(100, 50)) == 1
    assert Storage(["other/part-0"], 100).find(table(1, 50)) == 1


NAMES = st.lists(st.from_regex(r"([a-c]{1,2}/){0,2}[a-d]{1,3}", fullmatch=True), min_size=1, max_size=80)


@given(NAMES, NAMES, st.integers(1, 10))
def test_requests_are_bounded_by_files_and_by_listings(names: Sequence[str], wanted: Sequence[str], page: int) -> None:
    storage = Storage({*names}, page)
    by_folder: dict[str, set[str]] = {}
    for name in wanted:
        folder, slash, _ = name.rpartition("/")
        by_folder.setdefault(folder + slash, set()).add(name)
    listings = {folder: len(list(storage.pages(folder, "/"))) for folder in by_folder}
    most = sum(2 * min(listings[folder], len(files)) + 1 for folder, files in by_folder.items())
    assert storage.find(wanted) <= most + len(by_folder) // MAX_PARALLEL_REQUESTS
