"""Which request sits in which row of the batch."""

from __future__ import annotations

import heapq


class RowError(RuntimeError):
    """A row was asked for that cannot be given. The scheduler admitted more than the device holds."""


class RowTable:
    """Stable rows: a request keeps its row from admission until it finishes or is preempted.

    A row is the device's state slot. Lane l owns the rows [l * per_lane, (l + 1) * per_lane); one lane is the
    ordinary case.
    The lowest free row of a lane is given out first, so that small batches stay in the low rows.
    Source: tt-metal contract 1.9.
    """

    def __init__(self, capacity: int, lanes: int = 1) -> None:
        if capacity < 1 or lanes < 1 or capacity % lanes:
            raise ValueError(f"{capacity} rows cannot be divided into {lanes} lanes")
        self.capacity = capacity
        self.lanes = lanes
        self.per_lane = capacity // lanes
        self._free = [list(range(lane * self.per_lane, (lane + 1) * self.per_lane)) for lane in range(lanes)]
        self._row: dict[str, int] = {}

    def assign(self, request_id: str, lane: int = 0) -> int:
        """Give the request the lowest free row of its lane."""
        if request_id in self._row:
            raise RowError(f"request {request_id!r} already holds row {self._row[request_id]}")
        if not 0 <= lane < self.lanes:
            raise RowError(f"request {request_id!r} names lane {lane}: there are {self.lanes}")
        if not self._free[lane]:
            raise RowError(f"lane {lane} has no free slot for request {request_id!r}: it holds {self.per_lane}")
        row = self._row[request_id] = heapq.heappop(self._free[lane])
        return row

    def release(self, request_id: str) -> int:
        """Take the row back; returns it. Raises RowError for a request without a row."""
        try:
            row = self._row.pop(request_id)
        except KeyError:
            raise RowError(f"request {request_id!r} holds no row") from None
        heapq.heappush(self._free[row // self.per_lane], row)
        return row

    def row_of(self, request_id: str) -> int:
        try:
            return self._row[request_id]
        except KeyError:
            raise RowError(f"request {request_id!r} holds no row") from None

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._row

    def __len__(self) -> int:
        return len(self._row)
