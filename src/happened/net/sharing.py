"""The layer of a broadcast medium: which frames are the same on several links (`Batch.shared`)."""

from collections.abc import Sequence
from typing import Any

from ..core.effects import Send
from .kernel import Kernel


def share_frames(kernel: Kernel) -> None:
    """Note each frame that is sent with its link number on every link that has it."""
    put_each, links = kernel.put_each, kernel.links

    def put_and_note(sends: Sequence[Send[Any]], frames: Sequence[bytes]) -> list[int]:
        numbers = put_each(sends, frames)
        alike: dict[bytes, dict[int, int]] = {}
        for (to, _), frame, number in zip(sends, frames, numbers, strict=True):
            if to not in links.parked:  # what is on disk, the link carries
                alike.setdefault(frame, {})[to] = number
        kernel.shared += alike.items()
        return numbers

    kernel.put_each = put_and_note
