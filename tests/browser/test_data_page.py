"""The page of ``epochal inspect data`` in a real browser without a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import epochal as ep
from epochal.inspect.sample_page import build_page
from epochal.inspect.split_report import inspect_split

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser


def test_a_sheet_of_samples_draws_pictures_boxes_masks_and_sounds_offline(
    chromium: Browser, tmp_path: Path
) -> None:
    samples = [
        {
            "image": np.full((3, 40, 60), 80, np.uint8),
            "boxes": np.array([[10, 5, 30, 25]]),
            "mask": np.eye(40, 60, dtype=int),
            "sound": np.sin(np.arange(4000, dtype=np.float32)),
            "text": "<b>bold</b>",
        }
    ]
    loader = ep.data.chain(samples).loader(batch_size=1, collate="list")
    report = inspect_split("train", loader, limit=1, examples=1)
    page_file = tmp_path / "data.html"
    page_file.write_text(build_page("shop", [report]), encoding="utf-8")
    context = chromium.new_context(offline=True)
    page = context.new_page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("requestfailed", lambda request: problems.append(request.url[:80]))
    page.goto(page_file.as_uri())
    shown = page.locator("figure svg")
    box = page.locator("figure svg rect").bounding_box()
    picture = shown.first.bounding_box()
    assert box is not None
    assert picture is not None
    scale = picture["width"] / 60
    line = 60 / 64  # half of it is drawn outside
    assert abs(box["x"] - picture["x"] - (10 - line / 2) * scale) < 2
    assert abs(box["width"] - (20 + line) * scale) < 2
    assert shown.count() == 2  # the picture, and the spectrogram of the sound
    sizes = page.evaluate(
        """Promise.all([...document.querySelectorAll("image")].map(async (one) => {
            const drawn = new Image(); drawn.src = one.href.baseVal;
            await drawn.decode(); return [drawn.naturalWidth, drawn.naturalHeight] }))"""
    )
    assert sizes[:2] == [[60, 40], [60, 40]]
    assert "text: <b>bold</b>" in page.locator("figcaption").inner_text()
    context.close()
    assert problems == []
