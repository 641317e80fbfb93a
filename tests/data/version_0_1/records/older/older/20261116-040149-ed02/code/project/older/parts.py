"""A task, a model and a hook, small enough to keep what they leave as test data."""

import os
import signal

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import epochal as ep

FEATURES, CLASSES = 8, 3


class Points(ep.Task):
    """Points with a label: the index of the largest of their first three features."""

    def __init__(self, *, num_samples: int = 48, batch_size: int = 4) -> None:
        self.noise = torch.Generator().manual_seed(5)
        self.num_seen = 0
        self.train_loader = DataLoader(
            _points(num_samples, seed=0), batch_size=batch_size, shuffle=True
        )
        self.val_loader = DataLoader(_points(16, seed=1), batch_size=8)
        self.test_loader = DataLoader(_points(16, seed=2), batch_size=8)

    def batch_forward(self, model, batch):
        features = batch[0]
        if model.training:
            self.num_seen += len(features)
            features = features + 0.01 * torch.randn(features.shape, generator=self.noise)
        return {"logits": model(features)}

    def batch_loss(self, out, batch):
        loss = nn.functional.cross_entropy(out["logits"], batch[1])
        return {"loss": (loss, len(batch[1]))}

    def batch_metric(self, out, batch):
        logits, labels = out["logits"], batch[1]
        correct = (logits.argmax(1) == labels).float().mean()
        nll = nn.functional.cross_entropy(logits, labels)
        return {"acc": (correct, len(labels)), "nll": (nll, len(labels))}


class Mlp(nn.Module):
    """Two layers with batch norm and dropout: 227 weights."""

    def __init__(self, *, width: int = 16, dropout: float = 0.2) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(FEATURES, width),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(width, CLASSES),
        )

    def forward(self, x):
        return self.layers(x)


class Preemption(ep.Hook):
    """Sends SIGTERM to this process after one step, if the environment names the step."""

    def __init__(self) -> None:
        self.num_steps = 0

    def step_end(self, run):
        self.num_steps += 1
        if os.environ.get("PREEMPT_AT_STEP") == str(run.step):
            os.kill(os.getpid(), signal.SIGTERM)

    def state_dict(self):
        return {"num_steps": self.num_steps}

    def load_state_dict(self, state):
        self.num_steps = state["num_steps"]


def _points(num_samples, *, seed):
    x = torch.randn(num_samples, FEATURES, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, x[:, :CLASSES].argmax(1))


class WithLoss(Mlp):
    """The same model, which returns its own loss."""

    def forward(self, x, label):
        logits = super().forward(x)
        return {"loss": nn.functional.cross_entropy(logits, label), "logits": logits}


class Rows(Dataset):
    """Points by name, for a model that returns its own loss."""

    def __init__(self, *, num_samples: int = 16, seed: int = 0) -> None:
        self.points = _points(num_samples, seed=seed)

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index):
        x, label = self.points[index]
        return {"x": x, "label": label}
