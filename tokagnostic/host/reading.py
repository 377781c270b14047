"""What one call of a host reads, from the lookup to the hidden states of its layers and to its cache."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tokagnostic.errors import HostError
from tokagnostic.host.caches import filled_cache, held_by, remember
from tokagnostic.host.history import History
from tokagnostic.host.padding import RealPositions
from tokagnostic.host.short_conv import Surroundings

if TYPE_CHECKING:
    from tokagnostic.host.attachment import Attachment


@dataclass(eq=False)
class Reading:
    """What one call of a host reads."""

    owner: Attachment
    features: list[Tensor]
    """For each attached layer, float [B, T, E]; layers that share a table share a tensor."""
    keys: Tensor
    """Of the windows that end at each position, int64 [B, T, N]; -1 for no window."""
    cache: Any
    """The call's cache, or None; the host may make one."""
    history: History | None
    """The positions before the call."""
    whole: History
    """The positions that the cache will hold after the call."""
    padding: RealPositions | None
    """Where the call's real positions are; None if all are."""
    conv_inputs: dict[int, Tensor] = field(default_factory=dict)
    """What the short convolution of each layer was given, float [B, T, D]."""
    num_read: list[int] = field(init=False)
    """Positions that each attached layer has read."""

    def __post_init__(self) -> None:
        self.num_read = [0] * len(self.features)

    @property
    def num_positions(self) -> int:
        """Positions of the call, padding included."""
        return self.keys.shape[0] * self.keys.shape[1]

    def surroundings(self, layer: int, reach: int) -> Surroundings:
        """Documents of the call's positions and of `reach` before them, and what the layer's convolution was given there."""
        length = self.keys.shape[1]
        ids, starts = self.whole.input_ids.tail(length), self.whole.starts.tail(length)
        return surroundings(ids, starts, self.padding, self.history, layer, reach)

    def add_to(self, hidden: Tensor | None, slot: int) -> Tensor:
        """The hidden state that enters an attached layer, float [B, T, D], with what was read added.

        Raises:
            HostError: if the layer is given anything but one hidden state per position of the call.
        """
        index, layer = self.owner.layers[slot], self.owner.layer(slot)
        batch, length, _ = self.keys.shape
        if not isinstance(hidden, Tensor) or hidden.shape != (batch, length, layer.width):
            found = f"a hidden state of shape {list(hidden.shape)}" if isinstance(hidden, Tensor) else "no hidden state"
            raise HostError(
                f"layer {index} is given {found} in a call of {self.num_positions} positions",
                expected=f"a hidden state of shape {[batch, length, layer.width]}",
                remedy="Attach to a host whose layers take hidden_states [B, T, D] first",
            )
        around = None if layer.conv is None else self.surroundings(index, layer.conv.reach)
        read = layer.read(hidden, self.features[slot], around)
        if read.conv_input is not None:
            self.conv_inputs[index] = read.conv_input.detach()
        self.num_read[slot] += self.num_positions
        self.owner.reads[slot].add(self.keys, read.gate)
        return hidden + read.delta

    def finish(self, output: Any) -> None:
        """Make sure that the layers have read, and write the call's positions into its cache.

        Args:
            output: what the decoder gave back.

        Raises:
            HostError: if a layer has not read exactly the positions of the call.
        """
        self.check_complete()
        self.remember(output)

    def remember(self, output: Any) -> None:
        """Write the call's positions into its cache, if the host has put them there too.

        Args:
            output: what the decoder gave back; a cache that the host has made is found in it.
        """
        cache = filled_cache(self.cache, output)
        if cache is None:
            return
        if held_by(cache) in (None, self.whole.length):
            remember(cache, self.whole.with_conv_inputs(self.conv_inputs))

    def check_complete(self) -> None:
        """Make sure that the memory was not silently inactive.

        Raises:
            HostError: if a layer has not read exactly the positions of the call.
        """
        for layer, num_read in zip(self.owner.layers, self.num_read, strict=True):
            if num_read != self.num_positions:
                raise HostError(
                    f"layer {layer} read the memory at {num_read} positions in a call of {self.num_positions}",
                    expected="one read at every position",
                    remedy="Attach to layers that the host runs once per call, or use attachment.disabled()",
                )


def surroundings(
    ids: Tensor, starts: Tensor, padding: RealPositions | None, history: History | None, layer: int, reach: int
) -> Surroundings:
    """What a layer's convolution may look at in a call and up to `reach` real positions before it.

    Args:
        ids: masked at padding, int64 [B, T].
        starts: True at each document's first real position, bool [B, T].
        padding: where the real positions are; None if all are.
        history: the positions before the call.
        layer: index of the layer.
        reach: positions that its convolution looks back.
    """
    if padding is not None:
        ids, starts = padding.side_by_side(ids), padding.side_by_side(starts)
    if history is None:
        return Surroundings.of(ids, starts, None, padding)
    old_ids, old_starts, old_inputs = history.convolved(layer, reach)
    return Surroundings.of(
        torch.cat((old_ids, ids), dim=1), torch.cat((old_starts, starts), dim=1), old_inputs, padding
    )
