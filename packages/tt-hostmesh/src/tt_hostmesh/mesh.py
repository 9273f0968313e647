"""A mesh of software devices: shape, devices, submeshes and one command queue."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar, cast

from tt_hostmesh.errors import HostMeshError
from tt_hostmesh.spans import record_path, write_spans
from tt_hostmesh.timeline import CommandQueue, HostEvent

T = TypeVar("T")


class MeshShape(NamedTuple):
    """Rows and columns of a mesh."""

    rows: int
    columns: int

    def mesh_size(self) -> int:
        return self.rows * self.columns

    @staticmethod
    def of(value: object) -> "MeshShape":
        """From any pair of positive ints. Raises HostMeshError otherwise."""
        pair = tuple(cast("Sequence[object]", value)) if isinstance(value, Sequence) else ()
        counts = [n for n in pair if isinstance(n, int) and n > 0]
        if len(pair) != 2 or len(counts) != 2:
            raise HostMeshError(f"mesh shape {value!r} is not a pair of positive numbers (rows, columns)")
        return MeshShape(*counts)


class MeshParameters(NamedTuple):
    """What the mesh was opened with. Sizes in bytes; None = the runtime's default."""

    dispatch_core_axis: str | None = None
    trace_region_size: int | None = None
    worker_l1_size: int | None = None
    l1_small_size: int | None = None


class HostMesh:
    """An open mesh. Work is queued with `submit` and runs in order in the mesh's own thread.

    A submesh shares its parent's queue, so work of all lanes is in one order. Every use after close raises
    HostMeshError.
    """

    def __init__(
        self,
        shape: MeshShape,
        device_ids: Sequence[int],
        parameters: MeshParameters | None = None,
        *,
        fabric_enabled: bool = False,
        parent: "HostMesh | None" = None,
    ) -> None:
        self._shape = shape
        self._device_ids = tuple(device_ids)
        self._parent = parent
        self._submeshes: list[HostMesh] = []
        self._open = True
        self._fabric_enabled = fabric_enabled
        self.parameters = parameters or MeshParameters()
        self._record = None if parent else record_path()
        self._queue = parent._queue if parent else self._own_queue()

    def _own_queue(self) -> CommandQueue:
        return CommandQueue(f"tt-hostmesh-{'x'.join(map(str, self._shape))}", record=self._record is not None)

    @property
    def shape(self) -> MeshShape:
        return self._shape

    @property
    def is_open(self) -> bool:
        return self._open

    @property
    def parent(self) -> "HostMesh | None":
        return self._parent

    @property
    def busy_seconds(self) -> float:
        """Seconds that the device has worked since the mesh was opened, simulated ones if it simulates time."""
        return self._queue.busy_seconds

    @property
    def executed(self) -> int:
        """Commands that have run since the mesh was opened."""
        return self._queue.executed

    def get_num_devices(self) -> int:
        return len(self._device_ids)

    def get_device_ids(self) -> list[int]:
        return list(self._device_ids)

    def get_submeshes(self) -> list["HostMesh"]:
        """Open submeshes, in row-major order."""
        return list(self._submeshes)

    def create_submeshes(self, shape: object) -> list["HostMesh"]:
        """Cut the mesh into submeshes of `shape`, row-major.

        Raises HostMeshError when the shape does not tile the mesh or submeshes exist already.
        """
        self.require_open("create submeshes")
        part = MeshShape.of(shape)
        if self._submeshes:
            raise HostMeshError(f"mesh {tuple(self._shape)} has submeshes already: close them first")
        if self._shape.rows % part.rows or self._shape.columns % part.columns:
            raise HostMeshError(f"submesh shape {tuple(part)} does not tile the mesh {tuple(self._shape)}")
        for top in range(0, self._shape.rows, part.rows):
            for left in range(0, self._shape.columns, part.columns):
                ids = [
                    self._device_ids[row * self._shape.columns + column]
                    for row in range(top, top + part.rows)
                    for column in range(left, left + part.columns)
                ]
                child = HostMesh(part, ids, self.parameters, fabric_enabled=self._fabric_enabled, parent=self)
                self._submeshes.append(child)
        return list(self._submeshes)

    def submit(self, command: Callable[[], T], label: str = "command") -> HostEvent[T]:
        """Queue `command` for the device thread and return its event at once.

        What the command returns or raises is found at the event. Raises HostMeshError on a closed mesh and on several
        devices without a fabric: work on them would never meet.
        """
        self.require_open(label)
        if len(self._device_ids) > 1 and not self._fabric_enabled:
            raise HostMeshError(
                f"mesh {tuple(self._shape)} has {len(self._device_ids)} devices but was opened without a fabric: "
                "call set_fabric_config before open_mesh_device"
            )
        return self._queue.submit(command, HostEvent(self, label))

    def simulate_time(self) -> None:
        """From now on commands take the time they ask for with `occupy`, not that of their computation."""
        self._queue.simulated = True

    def occupy(self, seconds: float) -> None:
        """For a running command: it takes `seconds` more of simulated time."""
        self._queue.occupy(seconds)

    def settle(self) -> None:
        """Block until everything queued is computed, though simulated time may lag behind."""
        self.require_open("settle")
        self._queue.settle()

    def finish(self) -> None:
        """Block until everything queued has run. Errors stay with their events."""
        self.require_open("finish")
        self._queue.finish()

    def require_open(self, action: str) -> None:
        """Raises HostMeshError if the mesh is closed."""
        if not self._open:
            raise HostMeshError(f"mesh {tuple(self._shape)} is closed: {action} is not possible any more")

    def close(self) -> None:
        """Close this mesh; the queue of a root mesh is drained and its thread ended. For the runtime."""
        self.require_open("close")
        if self._submeshes:
            raise HostMeshError(
                f"mesh {tuple(self._shape)} still has {len(self._submeshes)} open submeshes: close them first"
            )
        self._open = False
        if self._parent is None:
            self._queue.stop()
            if self._record is not None:
                write_spans(self._record, self._queue.spans or [])
        else:
            self._parent._submeshes.remove(self)
