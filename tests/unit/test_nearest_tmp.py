from __future__ import annotations

from epochal.errors import misspelling_of, nearest, nearest_few


def test_the_closest_name_is_found_whatever_its_case() -> None:
    for name, expected in (
        ("adamm", "Adam"),
        ("ADAMW", "AdamW"),
        ("sdg", "SGD"),
        ("zzz", None),
        ("", None),
    ):
        assert nearest(name, ["SGD", "Adam", "AdamW"]) == expected


def test_nothing_is_near_when_nothing_is_known() -> None:
    assert nearest("adam", []) is None


def test_a_higher_cutoff_refuses_what_is_only_similar() -> None:
    assert nearest("batch_forwards", ["batch_forward"], cutoff=0.85) == "batch_forward"
    assert nearest("forward_all", ["batch_forward"], cutoff=0.85) is None


def test_several_names_come_with_the_closest_first() -> None:
    assert nearest_few("adamw", ["SGD", "Adam", "NAdam", "AdamW"], 2) == ("AdamW", "Adam")


KNOWN = ("batch_metric", "epoch_end", "onBatchEnd", "setup", "to", "postprocess", "eval_end")


def test_a_misspelling_has_the_same_words_with_a_slip() -> None:
    for written, meant in (
        ("batch_metrics", "batch_metric"),
        ("bacth_metirc", "batch_metric"),
        ("batchMetric", "batch_metric"),
        ("epoch_ned", "epoch_end"),
        ("on_batch_end", "onBatchEnd"),
        ("setpu", "setup"),
        ("set_up", "setup"),
        ("val_end", "eval_end"),
        ("post_process", "postprocess"),
        ("batch_metric_fn", None),
        ("batch_metal", None),
        ("epoch_and", None),
        ("setups", None),
        ("tot", None),
        ("do", None),
        ("", None),
    ):
        assert misspelling_of(written, KNOWN) == meant
