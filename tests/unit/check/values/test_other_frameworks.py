from __future__ import annotations


def shown(report) -> list[tuple[str, str]]:
    return [(problem.key, problem.hint) for problem in report.problems]


def test_section_names_of_other_frameworks_are_recognised(check_dict) -> None:
    for name, meant in (
        ("optimizer", "optim"),
        ("scheduler", "schedule"),
        ("lr_scheduler", "schedule"),
        ("trainer", "train"),
        ("dataset", "data"),
        ("datasets", "data"),
        ("callbacks", "hooks"),
        ("plugins", "hooks"),
        ("logger", "log"),
        ("$base", "$BASE"),
        ("BASE", "$BASE"),
        ("_base_", "$BASE"),
        ("defaults", "$BASE"),
        ("ema", "average"),
        ("seed_everything", "seed"),
        ("distributed", "engine.strategy"),
    ):
        assert shown(check_dict(**{name: {}})) == [(name, f"did you mean {meant!r}?")]


def test_top_level_keys_that_belong_into_a_section_are_reported(check_dict) -> None:
    for name, value, hint in (
        ("max_epochs", 5, "write train: {for: 5ep}"),
        ("max_steps", 500, "write train: {for: 500st}"),
        ("work_dir", "out", "write record: {log_dir: out}"),
        ("log_dir", "out", "write record: {log_dir: out}"),
        ("lr", 0.1, "write optim: {lr: ...}"),
        ("grad_clip", 1.0, "write optim: {clip: ...}"),
        ("wandb", True, "a hook: add {type: WandB} to hooks"),
        ("betas", [0.9, 0.99], "did you mean 'optim.betas'?"),
        ("width", 3, "did you mean 'model.width'?"),
        ("console_every", -1, "did you mean 'log.console_every'?"),
        ("clip", 1.0, "did you mean 'optim.clip'?"),
        ("device", [0], "choose it for each run: --device cuda:0, or device='cuda:0' in Python"),
    ):
        assert shown(check_dict(**{name: value})) == [(name, hint)]


def test_other_names_for_the_length_of_a_training_are_recognised(check_dict) -> None:
    for key, value, hint in (
        ("epochs", 2, "write for: 2ep"),
        ("max_epochs", 2, "write for: 2ep"),
        ("num_epochs", 2, "write for: 2ep"),
        ("steps", 300, "write for: 300st"),
        ("max_steps", 300, "write for: 300st"),
        ("epochs", "many", "write for: 10ep"),
        ("eval_evry", "1ep", "did you mean 'eval_every'?"),
    ):
        assert shown(check_dict(train={key: value})) == [(f"train.{key}", hint)]


def test_arguments_of_other_frameworks_are_recognised(check_dict) -> None:
    for key, value, meant in (
        ("learning_rate", 0.1, "lr"),
        ("wd", 0.1, "weight_decay"),
        ("gradient_clip_val", 1.0, "clip"),
        ("gradient_accumulation_steps", 2, "accumulate"),
    ):
        report = check_dict(optim={"type": "AdamW", key: value})
        assert shown(report) == [(f"optim.{key}", f"did you mean {meant!r}?")]


def test_names_of_other_frameworks_are_allowed_in_components(check_dict) -> None:
    model = {"type": "user.model.Mlp", "classes": 1, "epochs": 2}
    assert shown(check_dict(model=model)) == [("model.epochs", "known: act, classes, dtype, width")]


def test_keys_that_a_misspelt_base_may_set_are_not_missing(check_dict) -> None:
    report = check_dict(task=None, optim=None, model={"width": 3}, **{"$base": "a.yaml"})
    assert shown(report) == [("$base", "did you mean '$BASE'?")]
