"""A packed scene read back, by the format's description alone, and looked up as the page does."""

import json
import struct
from bisect import bisect_left, bisect_right

import numpy as np

NEVER = 2**31 - 1


class Unpacked:
    def __init__(self, block):
        (length,) = struct.unpack_from("<I", block)
        self.header = json.loads(block[4 : 4 + length])
        self.arrays = {
            name: np.frombuffer(block, np.dtype(kind).newbyteorder("<"), size, 4 + length + offset)
            for name, (kind, offset, size) in self.header["arrays"].items()
        }
        stretches = (self.header[key] for key in ("processes", "begin", "lengths"))
        self.events = [
            (name, begin + 1 + k)
            for name, begin, length in zip(*stretches, strict=True)
            for k in range(length)
        ]
        self._at, self._known = np.cumsum(self.arrays["at"]), np.cumsum(self.arrays["known"])

    def _steps(self, p, q):
        pair = p * len(self.header["processes"]) + q
        k = bisect_left(self.arrays["pairs"], pair)
        if k == len(self.arrays["pairs"]) or self.arrays["pairs"][k] != pair:
            return slice(0, 0)
        return slice(*self.arrays["starts"][k : k + 2])

    def past(self, event):
        """Of every process, its newest event in the past of this one."""
        p, found = self.header["processes"].index(event[0]), []
        for q in range(len(self.header["processes"])):
            steps = self._steps(p, q)
            place = bisect_right(self._at[steps], event[1])
            found.append(event[1] if p == q else int(self._known[steps][place - 1]) if place else 0)
        return found

    def future(self, event):
        """Of every process, its first event in the future of this one."""
        p, found = self.header["processes"].index(event[0]), []
        for q in range(len(self.header["processes"])):
            steps = self._steps(q, p)
            place = bisect_left(self._known[steps], event[1])
            late = place == len(self._known[steps])
            found.append(event[1] if p == q else NEVER if late else int(self._at[steps][place]))
        return found
