"""The device runtime behind one protocol: the real ``ttnn``, or the software mesh.

Nothing else in the project imports ``ttnn`` except :mod:`tt_platform.detect`. Both import it lazily, so this module
is importable on any machine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import Enum
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Protocol, runtime_checkable

RUNTIME_VARIABLE = "TT_RUNTIME"
RUNTIMES_GROUP = "tt_platform.runtimes"


class RuntimeChoiceError(ValueError):
    """``TT_RUNTIME`` holds something else than ``auto``, ``ttnn`` or ``host``."""


class RuntimeUnavailable(RuntimeError):
    """The chosen runtime is not installed, or cannot be imported."""


class RuntimeChoice(str, Enum):
    """The value of ``TT_RUNTIME``."""

    AUTO = "auto"
    TTNN = "ttnn"
    HOST = "host"

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] = os.environ) -> RuntimeChoice:
        """Read ``TT_RUNTIME``; unset or empty means ``auto``.

        Raises:
            RuntimeChoiceError: for any other value.
        """
        value = environ.get(RUNTIME_VARIABLE, "").strip()
        if not value:
            return cls.AUTO
        try:
            return cls(value)
        except ValueError:
            allowed = ", ".join(choice.value for choice in cls)
            raise RuntimeChoiceError(
                f"{RUNTIME_VARIABLE}={value!r} is not a runtime: allowed {allowed}; "
                "unset it to use ttnn when it is installed, or set host to use the software mesh"
            ) from None


@runtime_checkable
class MeshDevice(Protocol):
    """An open mesh. The names are ttnn's own."""

    @property
    def shape(self) -> Any: ...

    def get_num_devices(self) -> int: ...
    def get_device_ids(self) -> list[int]: ...
    def get_submeshes(self) -> list[Any]: ...
    def create_submeshes(self, shape: Any) -> list[Any]: ...


@runtime_checkable
class Runtime(Protocol):
    """What the plugin asks of a device runtime. Source of the surface: tt-metal contract 3.4.

    Shapes are ``(rows, columns)`` tuples of ints, sizes are bytes, names are the member names of ttnn's enums.
    """

    @property
    def name(self) -> str: ...

    def get_num_devices(self) -> int:
        """Chips that this process may use (``TT_VISIBLE_DEVICES`` is honoured); 0 if there is none."""
        ...

    def get_num_pcie_devices(self) -> int: ...
    def get_arch_name(self) -> str: ...
    def get_cluster_type(self) -> str: ...
    def get_system_mesh_shape(self) -> tuple[int, int]: ...
    def using_distributed_env(self) -> bool: ...
    def fabric_config_names(self) -> tuple[str, ...]: ...
    def set_fabric_config(self, **kwargs: object) -> None: ...
    def open_mesh_device(
        self,
        shape: tuple[int, int],
        *,
        dispatch_core_axis: str | None = None,
        trace_region_size: int | None = None,
        worker_l1_size: int | None = None,
        l1_small_size: int | None = None,
    ) -> MeshDevice: ...
    def close_mesh_device(self, mesh: MeshDevice) -> None: ...
    def read_device_profiler(self, mesh: MeshDevice) -> None: ...
    def set_default_device(self, mesh: MeshDevice) -> None: ...
    def get_default_device(self) -> MeshDevice | None: ...
    def event_synchronize(self, event: object) -> None: ...


class TtnnRuntime:
    """The :class:`Runtime` over an installed ``ttnn``.

    Constructing it imports ttnn and touches no device.

    Raises:
        RuntimeUnavailable: ttnn cannot be imported; the message carries the reason.
    """

    name = "ttnn"

    def __init__(self) -> None:
        try:
            self._ttnn: Any = import_module("ttnn")
        except (ImportError, OSError) as error:
            raise RuntimeUnavailable(
                f"ttnn cannot be imported: {error}; install tt-metal's ttnn for this Python, "
                f"or set {RUNTIME_VARIABLE}=host to use the software mesh"
            ) from error

    def get_num_devices(self) -> int:
        """Number of visible chips. ttnn raises RuntimeError when there is none; that is 0 here."""
        try:
            return int(self._ttnn.get_num_devices())
        except RuntimeError as error:
            if "No chips detected" in str(error):
                return 0
            raise

    def get_num_pcie_devices(self) -> int:
        return int(self._ttnn.GetNumPCIeDevices())

    def get_arch_name(self) -> str:
        return str(self._ttnn.get_arch_name())

    def get_cluster_type(self) -> str:
        return str(self._ttnn.cluster.get_cluster_type().name)

    def get_system_mesh_shape(self) -> tuple[int, int]:
        descriptor = self._ttnn._ttnn.multi_device.SystemMeshDescriptor()
        rows, columns = tuple(descriptor.shape())
        return int(rows), int(columns)

    def using_distributed_env(self) -> bool:
        return bool(self._ttnn.using_distributed_env())

    def fabric_config_names(self) -> tuple[str, ...]:
        return tuple(self._ttnn.FabricConfig.__members__)

    def set_fabric_config(self, **kwargs: object) -> None:
        """Forward to ``ttnn.set_fabric_config``; ``config`` and ``reliability_mode`` may be member names.

        Raises:
            ValueError: a name that this ttnn does not know; the message lists those that it does.
        """
        enums = {"config": self._ttnn.FabricConfig, "reliability_mode": self._ttnn.FabricReliabilityMode}
        self._ttnn.set_fabric_config(
            **{key: _member(key, enums[key], value) if key in enums else value for key, value in kwargs.items()}
        )

    def open_mesh_device(
        self,
        shape: tuple[int, int],
        *,
        dispatch_core_axis: str | None = None,
        trace_region_size: int | None = None,
        worker_l1_size: int | None = None,
        l1_small_size: int | None = None,
    ) -> MeshDevice:
        """Open a mesh of ``shape``. A size that is None is left to ttnn's default."""
        axes: dict[str | None, Any] = {
            None: None,
            "row": self._ttnn.DispatchCoreAxis.ROW,
            "col": self._ttnn.DispatchCoreAxis.COL,
        }
        sizes = {
            "trace_region_size": trace_region_size,
            "worker_l1_size": worker_l1_size,
            "l1_small_size": l1_small_size,
        }
        return self._ttnn.open_mesh_device(
            self._ttnn.MeshShape(*shape),
            dispatch_core_config=self._ttnn.DispatchCoreConfig(axis=axes[dispatch_core_axis]),
            **{key: size for key, size in sizes.items() if size is not None},
        )

    def close_mesh_device(self, mesh: MeshDevice) -> None:
        self._ttnn.close_mesh_device(mesh)

    def read_device_profiler(self, mesh: MeshDevice) -> None:
        self._ttnn.ReadDeviceProfiler(mesh)

    def set_default_device(self, mesh: MeshDevice) -> None:
        self._ttnn.SetDefaultDevice(mesh)

    def get_default_device(self) -> MeshDevice | None:
        return self._ttnn.GetDefaultDevice()

    def event_synchronize(self, event: object) -> None:
        self._ttnn.event_synchronize(event)


def _member(key: str, enum: Any, value: object) -> object:
    if not isinstance(value, str):
        return value
    if value not in enum.__members__:
        known = ", ".join(enum.__members__)
        raise ValueError(f"Fabric {key}={value!r} is not known to this ttnn: allowed {known}")
    return enum.__members__[value]


def load_runtime(choice: RuntimeChoice | None = None) -> Runtime:
    """Make the runtime that was chosen; ``auto`` is ttnn.

    Args:
        choice: None reads ``TT_RUNTIME``.

    Raises:
        RuntimeChoiceError: ``TT_RUNTIME`` is none of the three.
        RuntimeUnavailable: the runtime is not installed.
    """
    choice = RuntimeChoice.from_environ() if choice is None else choice
    if choice is RuntimeChoice.HOST:
        return _host_runtime()
    return TtnnRuntime()


def _host_runtime() -> Runtime:
    """The software mesh is found by name, so that no package here depends on it."""
    for entry_point in entry_points(group=RUNTIMES_GROUP, name="host"):
        try:
            factory: Any = entry_point.load()
        except (ImportError, AttributeError) as error:
            raise RuntimeUnavailable(f"The software mesh {entry_point.value} cannot be imported: {error}") from error
        return factory()
    raise RuntimeUnavailable(
        f"{RUNTIME_VARIABLE}=host needs the software mesh, which is not installed: pip install 'vllm-tt-plugin[host]'"
    )
