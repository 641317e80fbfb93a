"""Tests of epochal.records.secrets.token_formats."""

from __future__ import annotations

import pytest

from canaries import TOKENS
from epochal.records.secrets import REDACTED, redact


@pytest.mark.parametrize("token", TOKENS.values(), ids=TOKENS)
@pytest.mark.parametrize("around", ["{}", "failed with {}.", "'{}'", "a={}&b=1", "https://h/{}/x"])
def test_a_token_is_known_by_its_form(token: str, around: str) -> None:
    clean = redact(around.format(token))
    assert token not in clean
    assert REDACTED in clean
