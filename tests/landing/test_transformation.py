"""Transformations as text, and what HMAC derives from a secret."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from mirrorfeed.landing.transformation import Transformation, digest_of_key, hmac_pads


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hash", Transformation("hash")),
        (" mask ", Transformation("mask")),
        ("mask('')", Transformation("mask", "")),
        ("mask('a (b)')", Transformation("mask", "a (b)")),
        ("truncate(month)", Transformation("truncate")),
        ("truncate(year)", Transformation("truncate", unit="year")),
    ],
)
def test_transformation_is_parsed(text: str, expected: Transformation) -> None:
    assert Transformation.parse(text) == expected


@pytest.mark.parametrize("text", ["", "Hash", "hash()", "mask(x)", "mask('a'b')", "truncate", "truncate(day)", "md5"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a transformation; use one such as hash, mask"):
        Transformation.parse(text)


def test_cutting_a_text_is_a_cast() -> None:
    with pytest.raises(ValueError, match=r"to cut a text, use `cast: string\(20\)`"):
        Transformation.parse("truncate(20)")


@pytest.mark.parametrize("key", ["x" * 16, "ключ-длинный", "k" * 64, "k" * 65, "k" * 200])
def test_pads_are_those_of_hmac(key: str) -> None:
    inner, outer = hmac_pads(key)
    found = hashlib.sha256(outer + hashlib.sha256(inner + b"value").digest()).hexdigest()
    assert found == hmac.new(key.encode(), b"value", "sha256").hexdigest()


def test_digest_of_a_key_is_no_hash_of_a_value() -> None:
    digest = digest_of_key("x" * 16)
    assert len(digest) == 16
    assert digest != digest_of_key("x" * 17)
