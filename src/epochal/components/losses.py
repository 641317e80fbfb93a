"""Losses, each a mean over the items of a batch."""

from __future__ import annotations

from typing import Annotated, final

import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from epochal.config.bounds import Above, AtLeast, AtMost, Below
from epochal.errors import ConfigError, Problem, TaskError

_IGNORED = -100  # torch's default of ignore_index


@final
class CrossEntropy(nn.Module):
    """Cross entropy of scores (logits) with class numbers, or with probabilities of classes.

    Classes are along dimension 1. Each element of dense targets, such as (batch, height, width),
    is an item.

    Args:
        label_smoothing: Share of the target that is spread over all classes.
        class_weights: Weight of each class in the mean.
        ignore_index: Targets with this number are ignored.
    """

    class_weights: Tensor | None

    def __init__(
        self,
        *,
        label_smoothing: Annotated[float, AtLeast(0), Below(1)] = 0.0,
        class_weights: list[float] | None = None,
        ignore_index: int | None = None,
    ) -> None:
        super().__init__()
        self.label_smoothing = label_smoothing
        self.ignore_index = ignore_index
        weights = None if class_weights is None else torch.tensor(class_weights)
        self.register_buffer("class_weights", weights, persistent=False)

    @override
    def forward(self, input: Tensor, target: Tensor) -> tuple[Tensor, int | Tensor]:
        """The mean over all targets, and their number, or the sum of their class weights."""
        if target.is_floating_point():
            return self._mean(input, target), target.numel() // target.shape[1]
        if self.ignore_index is None and self.class_weights is None:
            return self._mean(input, target), target.numel()
        ignored = _IGNORED if self.ignore_index is None else self.ignore_index
        count = self._sum(target, target != ignored)
        if self.ignore_index is None and not self.label_smoothing:
            return self._mean(input, target), count
        # The mean of torch would wait for the device to count the targets.
        total = functional.cross_entropy(
            input,
            target,
            self.class_weights,
            ignore_index=ignored,
            reduction="sum",
            label_smoothing=self.label_smoothing,
        )
        # A batch with only ignored targets has loss 0 and zero gradients.
        return total / (count + (count == 0)), count

    def _mean(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(
            input, target, self.class_weights, label_smoothing=self.label_smoothing
        )

    def _sum(self, target: Tensor, counted: Tensor) -> Tensor:
        """The sum of the weights of the targets, so that microbatches add up to the batch."""
        if self.class_weights is None:
            return counted.sum()
        return (self.class_weights[target.where(counted, 0)] * counted).sum()


@final
class Focal(nn.Module):
    """``(1 - p) ** gamma`` times the cross entropy, where ``p`` is the target's probability.

    Classes are along dimension 1. Targets are class numbers, or floats of the same shape as the
    scores.

    Args:
        gamma: How strongly easy items are down-weighted; 0 is plain cross entropy.
        sigmoid: Treat each class as an independent binary problem (sigmoid, not softmax).
        alpha: Weight of positive targets, 1 - alpha of negative ones; only with ``sigmoid``.
    """

    def __init__(
        self,
        *,
        gamma: Annotated[float, AtLeast(0)] = 2.0,
        sigmoid: bool = False,
        alpha: Annotated[float, AtLeast(0), AtMost(1)] | None = None,
    ) -> None:
        super().__init__()
        if alpha is not None and not sigmoid:
            what = "weights positive and negative targets, which only sigmoid has"
            raise ConfigError(Problem("loss.alpha", what, hint="add sigmoid: true"))
        self.gamma = gamma
        self.sigmoid = sigmoid
        self.alpha = alpha

    @override
    def forward(self, input: Tensor, target: Tensor) -> tuple[Tensor, int]:
        """The mean over all targets, and their number."""
        if self.sigmoid:
            require_same_shape("focal", input, target)
            return self._binary(input, target.to(input.dtype)), len(target)
        logs = functional.log_softmax(input, dim=1)
        if target.is_floating_point():
            require_same_shape("focal", input, target)
            loss = -(target * _focus(1 - logs.exp(), self.gamma) * logs).sum(dim=1)
        else:
            log_p = logs.gather(1, target.unsqueeze(1)).squeeze(1)
            loss = -_focus(1 - log_p.exp(), self.gamma) * log_p
        return loss.mean(), loss.numel()

    def _binary(self, input: Tensor, target: Tensor) -> Tensor:
        entropy = functional.binary_cross_entropy_with_logits(input, target, reduction="none")
        p = input.sigmoid()
        loss = _focus(target * (1 - p) + (1 - target) * p, self.gamma) * entropy
        if self.alpha is not None:
            loss = loss * (target * self.alpha + (1 - target) * (1 - self.alpha))
        return loss.mean()


def _focus(error: Tensor, gamma: float) -> Tensor:
    """The factor of each item; clamped, because roots have an infinite gradient at 0."""
    return error.clamp(min=1e-8) ** gamma


@final
class Bce(nn.Module):
    """Binary cross entropy of scores (logits) with targets between 0 and 1, of the same shape.

    Args:
        pos_weight: Weight of positive targets, for each class along the last dimension.
    """

    pos_weight: Tensor | None

    def __init__(self, *, pos_weight: list[float] | None = None) -> None:
        super().__init__()
        weight = None if pos_weight is None else torch.tensor(pos_weight)
        self.register_buffer("pos_weight", weight, persistent=False)

    @override
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The mean over all elements."""
        require_same_shape("bce", input, target)
        return functional.binary_cross_entropy_with_logits(
            input, target.to(input.dtype), pos_weight=self.pos_weight
        )


@final
class Kl(nn.Module):
    """The divergence of the target's distribution from that of the scores (logits).

    Classes are along dimension 1.

    Args:
        logits: Whether the target is logits too, such as a teacher's, not probabilities.
        temperature: Divides all logits; the result is multiplied by its square, which preserves
            the size of the gradients.
    """

    def __init__(
        self, *, logits: bool = False, temperature: Annotated[float, Above(0)] = 1.0
    ) -> None:
        super().__init__()
        self.logits = logits
        self.temperature = temperature

    @override
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The sum over classes, and the mean over everything else."""
        require_same_shape("kl", input, target)
        logs = functional.log_softmax(input / self.temperature, dim=1)
        if self.logits:
            target = functional.softmax(target / self.temperature, dim=1)
        divergence = functional.kl_div(logs, target, reduction="none").sum(dim=1).mean()
        return divergence * self.temperature**2


@final
class Dice(nn.Module):
    """One minus the soft Dice coefficient, the mean over samples and classes.

    Targets that are class numbers, (batch, ...), use the softmax of scores (batch, classes, ...).
    Targets of the same shape as the scores are masks and use the sigmoid.

    Args:
        smooth: Added to numerator and denominator, so that an empty region predicted as empty
            has loss 0.
    """

    def __init__(self, *, smooth: Annotated[float, AtLeast(0)] = 1.0) -> None:
        super().__init__()
        self.smooth = smooth

    @override
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The mean over samples and classes."""
        if target.dim() == input.dim() - 1:
            shares = input.softmax(dim=1)
            classes = torch.arange(input.shape[1], device=input.device)
            wanted = target.unsqueeze(1) == classes.view(1, -1, *[1] * (target.dim() - 1))
        else:
            require_same_shape("dice", input, target)
            shares, wanted = input.sigmoid(), target
        wanted = wanted.to(shares.dtype).flatten(2)  # (batch, classes, points)
        shares = shares.flatten(2)
        overlap = 2 * (shares * wanted).sum(dim=2) + self.smooth
        return (1 - overlap / (shares.sum(dim=2) + wanted.sum(dim=2) + self.smooth)).mean()


@final
class Contrastive(nn.Module):
    """Symmetric InfoNCE, as in CLIP: row ``i`` of one input matches row ``i`` of the other.

    Embeddings are normalised; the scores are their dot products divided by the temperature.
    The loss is the mean of the cross entropies of both directions.

    Args:
        temperature: Divides the scores; a model with a learned scale passes it as ``scale``.
    """

    def __init__(self, *, temperature: Annotated[float, Above(0)] = 0.07) -> None:
        super().__init__()
        self.temperature = temperature

    @override
    def forward(
        self, first: Tensor, second: Tensor, scale: Tensor | None = None
    ) -> tuple[Tensor, int]:
        """The mean over both directions, and the number of pairs."""
        require_same_shape("contrastive", first, second)
        first, second = functional.normalize(first, dim=-1), functional.normalize(second, dim=-1)
        products = first @ second.T  # (batch, batch)
        scores = products / self.temperature if scale is None else products * scale
        partners = torch.arange(len(first), device=first.device)
        forward = functional.cross_entropy(scores, partners)
        backward = functional.cross_entropy(scores.T, partners)
        return (forward + backward) / 2, len(first)


@final
class Mse(nn.Module):
    """The mean of squared differences."""

    @override
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The mean over all elements."""
        require_same_shape("mse", input, target)
        return functional.mse_loss(input, target)


@final
class L1(nn.Module):
    """The mean of absolute differences."""

    @override
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The mean over all elements."""
        require_same_shape("l1", input, target)
        return functional.l1_loss(input, target)


@final
class Huber(nn.Module):
    """Half the squared difference up to ``delta``, linear beyond it.

    Args:
        delta: The difference from which the loss is linear.
    """

    def __init__(self, *, delta: Annotated[float, Above(0)] = 1.0) -> None:
        super().__init__()
        self.delta = delta

    @override
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The mean over all elements."""
        require_same_shape("huber", input, target)
        return functional.huber_loss(input, target, delta=self.delta)


def require_same_shape(name: str, input: Tensor, target: Tensor) -> None:
    """Refuse a target of another shape than the input, which torch would silently broadcast."""
    if input.shape != target.shape:
        raise TaskError(
            f"loss: {name} got an input of shape {tuple(input.shape)} and a target of shape "
            f"{tuple(target.shape)}\n"
            "  give both the same shape, for example with .unsqueeze(1) or .squeeze(1)"
        )
