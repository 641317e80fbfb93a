"""An index of a few runs, without the folders."""

from __future__ import annotations

import sqlite3

import pytest

from epochal.records.index.index_database import create_tables
from indexed import add_run


@pytest.fixture
def connection() -> sqlite3.Connection:
    """Three runs: one that went well, one that became NaN, and one that failed at once."""
    connection = sqlite3.connect(":memory:")
    create_tables(connection)
    add_run(
        connection,
        "good",
        tag="wide net",
        status="finished",
        started="2026-11-14T10:00:00.000+00:00",
        seconds=7200.0,
        step=500,
        best=0.95,
        seed=1,
        params={
            "optim.lr": 1e-3,
            "optim.type": "AdamW",
            "optim.fused": True,
            "train.for": "10ep",
            "limit": "90min",
            "model.widths": "[64,128]",
            "model.widths.0": 64,
            "model.widths.1": 128,
            "model.drop": None,
        },
        metrics={"val/acc": (0.94, 0.2, 0.95), "val/loss": (0.1, 0.05, 2.0)},
    )
    add_run(
        connection,
        "odd",
        tag="100%_sure",
        status="stopped",
        started="2026-11-15T09:00:00.000+00:00",
        seconds=60.0,
        step=20,
        params={
            "optim.lr": 0.1,
            "optim.type": "SGD",
            "optim.fused": False,
            "train.for": "9ep",
            "limit": "2h",
            "model.drop": 0.5,
        },
        metrics={
            "val/acc": (0.1, 0.1, 0.3),
            "val/loss": (None, 0.7, 3.0),
            "speed": (5.0, 1.0, 9.0),
        },
    )
    add_run(
        connection,
        "bad",
        tag="it's; DROP TABLE runs --",
        status="failed",
        started="",
        params={"optim.type": "SGD"},
    )
    connection.commit()
    return connection
