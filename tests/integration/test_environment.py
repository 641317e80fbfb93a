"""Values from the environment reach the parts, but no file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import epochal as ep
from small_project import write

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

SECRET = "hunter2-7c1f"


def test_values_from_the_environment_are_not_in_the_record(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", SECRET)
    write(
        shop / "shop" / "secret.py",
        """
        from shop.parts import Points

        class Locked(Points):
            def __init__(self, token: str, doors: list[str] = ()):
                super().__init__()
                assert token.startswith("hunter2")
                assert doors[0] == f"door of {token}"
        """,
    )
    write(
        shop / "secret.yaml",
        """
        $BASE: config.yaml
        env: [SHOP_TOKEN]
        task:
          type: shop.secret.Locked
          token: ${env:SHOP_TOKEN}
          doors: ["door of ${task.token}"]
        """,
    )
    result = ep.run(shop / "secret.yaml", fast=True, device="cpu")
    assert result.ok, result.traceback
    assert result.dir is not None
    written = [path for path in result.dir.rglob("*") if path.is_file()]
    assert len(written) > 8
    assert not [path for path in written if SECRET.encode() in path.read_bytes()]
    assert SECRET not in capfd.readouterr().out
    assert "${env:SHOP_TOKEN}" in (result.dir / "config" / "observed.json").read_text()
