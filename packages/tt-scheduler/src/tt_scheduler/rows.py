"""Stable rows: which request owns which row of the batch."""

from __future__ import annotations

import heapq


class NoFreeRow(ValueError):
    """A lane was asked for one row more than it has."""


class LaneRows:
    """A request keeps its row until it leaves, and a row has one owner.

    Row = lane * per_lane + slot; the lowest free slot is given out first, so that small batches stay in the low rows.
    """

    def __init__(self, lanes: int, per_lane: int) -> None:
        if lanes < 1 or per_lane < 1:
            raise ValueError(f"{lanes} lanes of {per_lane} rows: both must be at least 1")
        self.lanes = lanes
        self.per_lane = per_lane
        self._free = [list(range(per_lane)) for _ in range(lanes)]
        self._row: dict[str, int] = {}

    def assign(self, request_id: str, lane: int) -> int:
        """Give the request the lowest free row of its lane. Raises NoFreeRow, and ValueError for a second row."""
        if request_id in self._row:
            raise ValueError(f"request {request_id!r} already owns row {self._row[request_id]}")
        if not self._free[lane]:
            raise NoFreeRow(f"lane {lane} has no free slot for request {request_id!r}")
        row = self._row[request_id] = lane * self.per_lane + heapq.heappop(self._free[lane])
        return row

    def release(self, request_id: str) -> int:
        """Take the row back and return it. Raises KeyError for a request without a row."""
        row = self._row.pop(request_id)
        heapq.heappush(self._free[row // self.per_lane], row % self.per_lane)
        return row

    def __getitem__(self, request_id: str) -> int:
        return self._row[request_id]

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._row

    def __len__(self) -> int:
        return len(self._row)
