"""Running mean and variance of everything seen so far, e.g. to normalize observations."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed


class RunningMeanStdModel(torch.nn.Module):
    """Mean and variance over all data given to `update`, in batches of any size.

    Batches are merged by the parallel algorithm of Chan, Golub & LeVeque (1979), in float64. `mean` and `var` are
    float32 [*shape] (0 and 1 before the first update); `count` is the number of data. All are buffers: they follow
    the model's device and are saved in its state dict. Under torch.distributed all ranks must call `update` together,
    and each gets the statistics of the data of all ranks.
    """

    mean: torch.Tensor
    var: torch.Tensor
    count: torch.Tensor
    exact_mean: torch.Tensor
    exact_var: torch.Tensor

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.shape = tuple(shape)
        self.register_buffer("mean", torch.zeros(self.shape))
        self.register_buffer("var", torch.ones(self.shape))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("exact_mean", torch.zeros(self.shape, dtype=torch.float64))
        self.register_buffer("exact_var", torch.zeros(self.shape, dtype=torch.float64))

    @torch.no_grad()
    def update(self, x: torch.Tensor) -> None:
        """Merge in a batch of data, [*shape] with any leading dimensions; nothing changes if it is empty on all ranks."""
        x = x.reshape(-1, *self.shape).to(self.exact_mean)
        total = torch.cat([x.sum(0).flatten(), x.new_tensor([len(x)])])
        _all_reduce(total)
        n = total[-1]
        batch_mean = (total[:-1] / n.clamp(min=1)).view(self.shape)
        # Deviations from the mean over all ranks, so the variance between ranks is in it.
        square_deviation = (x - batch_mean).square().sum(0)
        _all_reduce(square_deviation)

        count = (self.count + n).clamp(min=1)
        delta = batch_mean - self.exact_mean
        self.exact_var.mul_(self.count).add_(square_deviation).add_(delta.square() * (self.count * n / count)).div_(count)
        self.exact_mean.add_(delta * (n / count))
        self.count.add_(n)
        self.mean.copy_(self.exact_mean)
        self.var.copy_(torch.where(self.count > 0, self.exact_var, 1))

    def normalize(self, x: torch.Tensor, clip: float | None = None, var_clip: float | None = None) -> torch.Tensor:
        """(x - mean) / std, limited to [-clip,clip], with the variance at least var_clip, which should be positive: x may be constant."""
        var = self.var if var_clip is None else self.var.clamp(min=var_clip)
        x = (x - self.mean) * var.rsqrt()
        return x if clip is None else x.clamp(-clip, clip)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        """Called by `load_state_dict`, with a copy. Also accepts the original rlpyt's state: any shape, and no exact statistics."""
        for name, buffer in self.named_buffers(recurse=False):
            saved = state_dict.get(prefix + name, state_dict.get(prefix + name.removeprefix("exact_")))
            if saved is not None:
                state_dict[prefix + name] = saved.reshape(buffer.shape) if saved.numel() == buffer.numel() else saved
        super()._load_from_state_dict(state_dict, prefix, *args)


def _all_reduce(tensor: torch.Tensor) -> None:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.all_reduce(tensor)
