"""The bytes that autograd has saved for backward passes, as they come and go."""
from collections import Counter
from collections.abc import Iterable

import torch
from torch import Tensor


class Saved:
    """A saved tensor, for as long as a graph needs it."""

    def __init__(self, tensor: Tensor, owner: "SavedBytes") -> None:
        self.tensor, self._owner = tensor, owner
        self._storage, self._bytes = tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes()
        owner.add(self._storage, self._bytes)

    def __del__(self) -> None:
        self._owner.remove(self._storage, self._bytes)


class SavedBytes(torch.autograd.graph.saved_tensors_hooks):
    """Counts, within a `with`, the memory that graphs save: each storage once, parameters and buffers never.

    A lower bound of what a pipeline holds: outputs of stages and buffers of messages are not saved by a graph.
    """

    def __init__(self, kept: Iterable[Tensor]) -> None:
        super().__init__(self._pack, lambda saved: saved.tensor if isinstance(saved, Saved) else saved)
        self._kept = {tensor.untyped_storage().data_ptr() for tensor in kept}
        self._uses: Counter[int] = Counter()
        self._now = 0
        self.peak = 0

    def _pack(self, tensor: Tensor) -> "Saved | Tensor":
        return tensor if tensor.untyped_storage().data_ptr() in self._kept else Saved(tensor, self)

    def add(self, storage: int, size: int) -> None:
        self._uses[storage] += 1
        if self._uses[storage] == 1:
            self._now += size
            self.peak = max(self.peak, self._now)

    def remove(self, storage: int, size: int) -> None:
        self._uses[storage] -= 1
        if self._uses[storage] == 0:
            self._now -= size
