"""A runtime that records every call, and a machine made of files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import pytest


class Shape(NamedTuple):
    rows: int
    columns: int


@dataclass(eq=False)
class RecordedMesh:
    shape: Shape
    submeshes: list[RecordedMesh] = field(default_factory=list)

    def get_num_devices(self) -> int:
        return self.shape[0] * self.shape[1]

    def get_device_ids(self) -> list[int]:
        return list(range(self.get_num_devices()))

    def get_submeshes(self) -> list[RecordedMesh]:
        return self.submeshes

    def create_submeshes(self, shape: Shape) -> list[RecordedMesh]:
        self.submeshes = [RecordedMesh(shape), RecordedMesh(shape)]
        return self.submeshes


@dataclass(eq=False)
class RecordingRuntime:
    """Answers as a machine of ``devices`` chips. ``calls`` is what happened, in order; ``failing`` calls raise."""

    devices: int = 8
    cluster: str = "T3K"
    failing: tuple[str, ...] = ()
    name: str = "recorded"
    calls: list[tuple[str, object]] = field(default_factory=list)
    opened: RecordedMesh | None = None

    def _do(self, call: str, detail: object) -> None:
        self.calls.append((call, detail))
        if call in self.failing:
            raise RuntimeError(f"{call} failed")

    @property
    def order(self) -> list[str]:
        return [call for call, _ in self.calls]

    def get_num_devices(self) -> int:
        return self.devices

    def get_num_pcie_devices(self) -> int:
        return self.devices

    def get_arch_name(self) -> str:
        return "wormhole_b0"

    def get_cluster_type(self) -> str:
        return self.cluster

    def get_system_mesh_shape(self) -> tuple[int, int]:
        return (1, self.devices)

    def using_distributed_env(self) -> bool:
        return False

    def fabric_config_names(self) -> tuple[str, ...]:
        return ("DISABLED", "FABRIC_1D", "FABRIC_1D_RING", "FABRIC_2D_TORUS_XY")

    def set_fabric_config(self, **kwargs: object) -> None:
        self._do("fabric", kwargs)

    def open_mesh_device(self, shape: tuple[int, int], **sizes: object) -> RecordedMesh:
        self._do("open", {"shape": shape, **sizes})
        self.opened = RecordedMesh(Shape(*shape))
        return self.opened

    def close_mesh_device(self, mesh: RecordedMesh) -> None:
        self._do("close mesh" if mesh is self.opened else "close submesh", mesh.shape)

    def read_device_profiler(self, mesh: RecordedMesh) -> None:
        self._do("profiler", mesh.shape)

    def set_default_device(self, mesh: RecordedMesh) -> None:
        self._do("default", mesh.shape)

    def get_default_device(self) -> RecordedMesh | None:
        return None

    def event_synchronize(self, event: object) -> None:
        self._do("event", event)


@pytest.fixture
def make_runtime() -> type[RecordingRuntime]:
    return RecordingRuntime


@pytest.fixture
def runtime() -> RecordingRuntime:
    return RecordingRuntime()
