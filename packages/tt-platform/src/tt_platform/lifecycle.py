"""Open a mesh once, close it once. Source of the order: tt-metal contract 3.2."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from multiprocessing import util as multiprocessing_util
from types import FrameType, TracebackType

from tt_platform.fabric import DISABLED, check_fabric_name, fabric_arguments
from tt_platform.mesh import Grid, choose_grid
from tt_platform.options import TTOptions
from tt_platform.presence import GIVEN_BACK
from tt_platform.runtime import MeshDevice, Runtime

logger = logging.getLogger("vllm.tt.lifecycle")

DEFAULT_TRACE_REGION_SIZE = 50_000_000  # bytes, when steps are traced


def trace_region_size(options: TTOptions) -> int | None:
    """Bytes to keep for traces; None when nothing is traced, whatever size was asked for."""
    if options.trace_mode == "none":
        return None
    return DEFAULT_TRACE_REGION_SIZE if options.trace_region_size is None else options.trace_region_size


class SessionError(RuntimeError):
    """A device session was used out of order."""


class DeviceSession:
    """One open mesh and everything that must be undone, in reverse order, exactly once.

    Closing runs, in this order: the callbacks of :meth:`before_close` (the model is released there), the profiler,
    the submeshes, the mesh, the fabric. A step that fails does not stop the later ones. Closing happens on the first of
    :meth:`close`, the end of a ``with`` block, the normal end of the process, SIGTERM where nobody else handles it,
    a failed :meth:`open`, a failed :meth:`start` and the end of the object named in :meth:`close_with`. The session
    itself has no destructor.

    Args:
        runtime: the device runtime.
        options: launch options.
        model_fabric: the model's ``fabric_config`` capability; copied, never changed.
        grid: the mesh to open; None chooses it from the environment.
        environ: the process's environment.
    """

    def __init__(
        self,
        runtime: Runtime,
        options: TTOptions | None = None,
        *,
        model_fabric: Mapping[str, object] | None = None,
        grid: Grid | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._runtime = runtime
        self._options = options or TTOptions()
        self._model_fabric = model_fabric
        self._grid = grid
        self._environ = environ
        self._lock = threading.RLock()
        self._undo: ExitStack | None = None
        self._mesh: MeshDevice | None = None
        self._owner: int | None = None
        self._used = False

    @property
    def mesh(self) -> MeshDevice:
        """The open mesh.

        Raises:
            SessionError: it is not open, or not any more.
        """
        if self._mesh is None:
            raise SessionError("The device mesh is not open: call DeviceSession.open() first, and not after close()")
        return self._mesh

    @property
    def is_open(self) -> bool:
        return self._mesh is not None

    def open(self) -> MeshDevice:
        """Set the fabric and open the mesh. On any failure, what was done is undone before the error leaves.

        Raises:
            SessionError: the session was opened before.
            MeshError, OptionError: the mesh or an option does not fit this machine; nothing was opened.
        """
        if self._used:
            raise SessionError("A DeviceSession opens its mesh once: make a new session to open again")
        devices = self._runtime.get_num_devices()
        grid = self._grid or choose_grid(self._environ, devices, distributed=self._runtime.using_distributed_env())
        check_fabric_name(self._options.fabric_config, self._runtime.fabric_config_names())
        self._used = True
        with ExitStack() as undo:
            self._set_fabric(undo, grid)
            mesh = self._open_mesh(undo, grid)
            self._owner = os.getpid()
            self._watch_for_exit(undo)
            self._undo = undo.pop_all()
            self._mesh = mesh
        GIVEN_BACK.clear()
        return mesh

    def before_close(self, callback: Callable[[], object]) -> None:
        """Run ``callback`` before the mesh closes; later callbacks run first. The model is released in one.

        Raises:
            SessionError: the session is not open.
        """
        with self._lock:
            if self._undo is None:
                raise SessionError("The device mesh is not open: register callbacks after DeviceSession.open()")
            self._undo.callback(callback)

    @contextmanager
    def start(self) -> Generator[None]:
        """A part of what follows :meth:`open` until the device serves: if it fails, the mesh is closed before the error
        leaves, which stays the same error."""
        try:
            yield
        except BaseException:
            try:
                self.close()
            except Exception as error:
                logger.warning("closing the device mesh after a failed start: %s", error)
            raise

    def close_with(self, owner: object) -> None:
        """Close when nobody holds ``owner`` any more, who would have called :meth:`close`. No callback may hold it.

        An engine that fails between two calls of its worker never calls it again. Only in the thread that calls this:
        a garbage collector may run in any, also in one that closing waits for. Elsewhere the end of the process closes.

        Raises:
            SessionError: the session is not open.
        """
        thread = threading.get_ident()

        def gone() -> None:
            if threading.get_ident() == thread:
                self.close()

        with self._lock:
            if self._undo is None:
                raise SessionError("The device mesh is not open: name its owner after DeviceSession.open()")
            finalizer = weakref.finalize(owner, gone)
            finalizer.atexit = False
            self._undo.callback(finalizer.detach)

    def close(self) -> None:
        """Release the model and close the mesh. A second call does nothing, nor does one in a forked child."""
        if self._owner != os.getpid():
            return
        with self._lock:
            undo, self._undo = self._undo, None
            self._mesh = None
        if undo is None:
            return
        try:
            undo.close()
        finally:
            GIVEN_BACK.set()
        logger.info("Closed the device mesh")

    def __enter__(self) -> MeshDevice:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _set_fabric(self, undo: ExitStack, grid: Grid) -> None:
        chips = grid[0] * grid[1]
        cluster = self._runtime.get_cluster_type() if chips > 1 else ""
        arguments = fabric_arguments(chips, cluster, self._model_fabric, self._options)
        if arguments is None:
            return
        logger.info(
            "Setting fabric config: %s, reliability mode: %s",
            arguments["config"],
            arguments.get("reliability_mode", "default"),
        )
        undo.callback(self._runtime.set_fabric_config, config=DISABLED)
        self._runtime.set_fabric_config(**arguments)

    def _open_mesh(self, undo: ExitStack, grid: Grid) -> MeshDevice:
        options = self._options
        logger.info("Attempting to open mesh device with grid shape %s", grid)
        mesh = self._runtime.open_mesh_device(
            grid,
            dispatch_core_axis=options.dispatch_core_axis,
            trace_region_size=trace_region_size(options),
            worker_l1_size=options.worker_l1_size,
            l1_small_size=options.l1_small_size,
        )
        undo.callback(self._runtime.close_mesh_device, mesh)
        undo.callback(self._close_submeshes, mesh)
        undo.callback(self._runtime.read_device_profiler, mesh)
        logger.info("multidevice with %d devices and grid %s is created", mesh.get_num_devices(), grid)
        return mesh

    def _close_submeshes(self, mesh: MeshDevice) -> None:
        with ExitStack() as each:
            for submesh in reversed(mesh.get_submeshes()):
                each.callback(self._runtime.close_mesh_device, submesh)

    def _watch_for_exit(self, undo: ExitStack) -> None:
        """Close at the end of the process, also where it is a child of multiprocessing, which may skip atexit."""
        atexit.register(self.close)
        undo.callback(atexit.unregister, self.close)
        finalizer = multiprocessing_util.Finalize(None, self.close, exitpriority=100)
        undo.callback(finalizer.cancel)
        if _on_main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _leave)
            undo.callback(_restore_sigterm)


def _on_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _leave(number: int, frame: FrameType | None) -> None:
    """End the process by the normal way out, so that the mesh is closed; 143 is what the default action reports."""
    sys.exit(128 + number)


def _restore_sigterm() -> None:
    if _on_main_thread() and signal.getsignal(signal.SIGTERM) is _leave:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
