"""A task that would end the process if a check imported it."""

import epochal as ep


class Shapes(ep.Task):
    """Tell shapes apart.

    Args:
        batch_size: Shapes per batch.
    """

    def __init__(self, *, batch_size: int = 32) -> None:
        self.batch_size = batch_size

    def batch_forward(self, model, batch):
        return {"logits": model(batch["image"])}

    def batch_loss(self, out, batch):
        return {"loss": (out["logits"].mean(), len(batch["label"]))}

    def batch_metric(self, out, batch):
        return {"acc": (out["logits"].mean(), len(batch["label"]))}


raise SystemExit("a check never imports the user's code")
