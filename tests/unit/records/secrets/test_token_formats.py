"""Tests of epochal.records.secrets.token_formats."""

from __future__ import annotations

from canaries import TOKENS
from epochal.records.secrets import REDACTED, redact


def test_a_token_is_known_by_its_form() -> None:
    for token in TOKENS.values():
        for around in ["{}", "failed with {}.", "'{}'", "a={}&b=1", "https://h/{}/x"]:
            clean = redact(around.format(token))
            assert token not in clean
            assert REDACTED in clean
