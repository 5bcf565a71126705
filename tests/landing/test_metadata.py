from __future__ import annotations

import json

import pytest

from mirrorfeed.landing.metadata import KeysChanged, MetadataUnreadable, keys_in, to_json


@pytest.mark.parametrize(
    ("keys", "spelled"),
    [((), {}), (("id",), {"keyColumns": ["id"]}), (("größe", "day"), {"keyColumns": ["größe", "day"]})],
)
def test_keys_are_read_as_they_were_written(keys: tuple[str, ...], spelled: dict[str, list[str]]) -> None:
    assert json.loads(to_json(keys)) == spelled
    assert keys_in(to_json(keys), "m") == keys


@pytest.mark.parametrize(
    ("content", "keys"),
    [
        ('{"KeyColumns": ["C1"]}', ("C1",)),
        ('{"keyColumns": []}', ()),
        ('{"keyColumns": ["a"], "isUpsertDefaultRowMarker": true}', ("a",)),
        ('{"fileDetectionStrategy": "LastUpdateTimeFileDetection"}', ()),
    ],
)
def test_both_spellings_and_other_fields_are_understood(content: str, keys: tuple[str, ...]) -> None:
    assert keys_in(content.encode(), "m") == keys


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is not a JSON object ("),
        (b"\xff", "it is not a JSON object ("),
        (b"[]", "it is not a JSON object ("),
        (b'{"keyColumns": "id"}', "keyColumns is not a list of names"),
        (b'{"keyColumns": [1]}', "keyColumns is not a list of names"),
        (b'{"keyColumns": null}', "keyColumns is not a list of names"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_reason(content: bytes, reason: str) -> None:
    with pytest.raises(MetadataUnreadable) as refused:
        keys_in(content, "orders/_metadata.json")

    assert refused.value.what().startswith("orders/_metadata.json cannot be read: ")
    assert reason in refused.value.what()
    assert refused.value.next() == ("Restore the file, or start the table again with `mirrorfeed rebuild`.")


def test_changed_keys_say_which_they_were_and_are() -> None:
    assert KeysChanged("orders/_metadata.json", ["a"], ["a", "b"]).what() == (
        "orders/_metadata.json sets the keys ['a'], and the table now has the keys ['a', 'b']."
    )
