"""Machines that are not there: small cluster descriptors, and a compiler that is only asked for its version.

ttnn reads TT_METAL_MOCK_CLUSTER_DESC_PATH once a process, so every test runs its program in a child process.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

Link = tuple[int, int, int, int]  # chip, channel, other chip, its channel


@dataclass(frozen=True)
class Machine:
    """A machine as its cables and boards say it is."""

    arch: str
    boards: list[tuple[str, list[int]]]
    links: list[Link]
    pcie: list[int]

    @property
    def chips(self) -> list[int]:
        return sorted(chip for _, chips in self.boards for chip in chips)

    def descriptor(self) -> str:
        """The YAML that ttnn reads. JSON is YAML, and needs no package to be written."""
        blackhole = self.arch == "blackhole"
        mask = {"noc_translation": True, "harvest_mask": 128 if blackhole else 64, "dram_harvesting_mask": 0}
        pcie_mask = {"p150": 2, "ubb_blackhole": 1}.get(self.boards[0][0], 0)
        mask |= {"eth_harvesting_mask": 288 if blackhole else 0, "pcie_harvesting_mask": pcie_mask}
        told = {
            "arch": {str(chip): self.arch for chip in self.chips},
            "chips": {} if len(self.chips) == len(self.pcie) else {str(c): [c % 4, c // 4, 0, 0] for c in self.chips},
            "chip_unique_ids": {str(chip): 1000 + chip for chip in self.chips},
            "ethernet_connections": [[{"chip": a, "chan": x}, {"chip": b, "chan": y}] for a, x, b, y in self.links],
            "ethernet_connections_to_remote_devices": [],
            "chips_with_mmio": [{str(chip): number} for number, chip in enumerate(self.pcie)],
            "io_device_type": "PCIe",
            "harvesting": {str(chip): mask for chip in self.chips},
            "boards": [
                [{"board_id": board_id(kind, number)}, {"board_type": kind}, {"chips": chips}]
                for number, (kind, chips) in enumerate(self.boards)
            ],
            "asic_locations": {str(chip): chip % 8 + 1 if len(self.chips) == 32 else 0 for chip in self.chips},
        }
        if "ubb" in self.boards[0][0]:  # trays of eight: the tray is read off the bus number
            base = (0xC0, 0x40, 0x00, 0x80) if self.arch == "wormhole_b0" else (0x00, 0xC0, 0x40, 0x80)
            told["chip_to_bus_id"] = {str(chip): f"0x{base[chip // 8] + chip % 8 + 1:02x}" for chip in self.chips}
        return re.sub(r'"(\d+)":', r"\1:", json.dumps(told, indent=1))


def board_id(kind: str, number: int) -> int:
    """The upper bits of a board's serial number are its type. Values of the boards' public naming."""
    upi = {"n150": 0x18, "n300": 0x14, "ubb": 0x35, "p150": 0x40, "ubb_blackhole": 0x47}[kind]
    return (upi << 36) | (number + 1)


def grid(rows: int, columns: int, east: list[tuple[int, int]], south: list[tuple[int, int]]) -> list[Link]:
    """Cables of a grid: each pair of neighbours is joined by every (channel, channel of the other) of its direction."""
    chip = [[row * columns + column for column in range(columns)] for row in range(rows)]
    links: list[Link] = []
    for row in range(rows):
        for column in range(columns):
            if column + 1 < columns:
                links += [(chip[row][column], a, chip[row][column + 1], b) for a, b in east]
            if row + 1 < rows:
                links += [(chip[row][column], a, chip[row + 1][column], b) for a, b in south]
    return links


def n300_boards(count: int) -> list[Link]:
    """The cable inside each board, from its PCIe chip to the one behind it."""
    return [(chip, channel, chip + count, channel - 8) for chip in range(count) for channel in (8, 9)]


def t3k() -> Machine:
    """Four N300 boards, their PCIe chips in a ring, and two cables between the chips behind them."""
    ring = [(0, 6, 2, 6), (0, 7, 2, 7), (0, 14, 1, 14), (0, 15, 1, 15)]
    ring += [(1, 0, 3, 0), (1, 1, 3, 1), (2, 14, 3, 14), (2, 15, 3, 15)]
    behind = [(4, 6, 5, 6), (4, 7, 5, 7), (6, 6, 7, 6), (6, 7, 7, 7)]
    boards = [("n300", [chip, chip + 4]) for chip in range(4)]
    return Machine("wormhole_b0", boards, ring + behind + n300_boards(4), [0, 1, 2, 3])


@dataclass(frozen=True)
class Tray:
    """How a Galaxy is built: four trays of eight chips, mirrored around the middle of an 8x4 grid.

    A chip has a place 0 to 3 from the edge to the middle row, and stands in the first or second column of its tray.
    Each pair of channel lists joins a chip and its neighbour.
    """

    kind: str
    second_inside: bool  # the second column is the one next to the other tray
    down: list[tuple[int, int]]  # place to place + 1
    across: list[tuple[int, int]]  # first column to second
    middle: list[tuple[int, int]]  # to the tray above or below
    beside: list[tuple[int, int]]  # to the tray at the side
    around: list[tuple[int, int]]  # from the bottom of a column back to its top
    back: list[tuple[int, int]]  # from the end of a row back to its start

    def chip(self, row: int, column: int) -> int:
        number = (row >= 4) + 2 * (column >= 2)
        second = (column in (1, 2)) == self.second_inside
        return number * 8 + self.place(row) + 4 * second

    @staticmethod
    def place(row: int) -> int:
        return min(row, 7 - row)

    def below(self, row: int, column: int) -> list[Link]:
        one, other = self.chip(row, column), self.chip(row + 1, column)
        if row == 3:
            return [(one, a, other, b) for a, b in self.middle]
        if row > 3:
            one, other = other, one
        return [(one, a, other, b) for a, b in self.down]

    def aside(self, row: int, column: int) -> list[Link]:
        one, other = self.chip(row, column), self.chip(row, column + 1)
        if column == 1:
            return [(one, a, other, b) for a, b in self.beside]
        if one % 8 >= 4:
            one, other = other, one
        return [(one, a, other, b) for a, b in self.across]

    def machine(self, arch: str) -> Machine:
        links = [link for row in range(7) for column in range(4) for link in self.below(row, column)]
        links += [link for row in range(8) for column in range(3) for link in self.aside(row, column)]
        links += [(self.chip(0, column), a, self.chip(7, column), b) for column in range(4) for a, b in self.around]
        links += [(self.chip(row, 0), a, self.chip(row, 3), b) for row in range(8) for a, b in self.back]
        return Machine(arch, [(self.kind, list(range(32)))], links, list(range(32)))


WORMHOLE_TRAY = Tray(
    "ubb",
    second_inside=True,
    down=[(8, 4), (9, 5), (10, 6), (11, 7)],
    across=[(12, 0), (13, 1), (14, 2), (15, 3)],
    middle=[(channel, channel) for channel in (8, 9, 10, 11)],
    beside=[(channel, channel) for channel in (12, 13, 14, 15)],
    around=[],
    back=[],
)
BLACKHOLE_TRAY = Tray(
    "ubb_blackhole",
    second_inside=False,
    down=[(4, 2), (5, 3)],
    across=[(6, 0), (7, 1)],
    middle=[(4, 4), (5, 5)],
    beside=[(0, 0), (1, 1)],
    around=[(2, 2), (3, 3)],
    back=[(6, 6), (7, 7)],
)

MACHINES = {
    "N150": Machine("wormhole_b0", [("n150", [0])], [], [0]),
    "N300": Machine("wormhole_b0", [("n300", [0, 1])], n300_boards(1), [0]),
    "T3K": t3k(),
    "GALAXY": WORMHOLE_TRAY.machine("wormhole_b0"),
    "P150": Machine("blackhole", [("p150", [0])], [], [0]),
    "P150_X8": Machine(
        "blackhole",
        [("p150", [chip]) for chip in range(8)],
        grid(2, 4, [(4, 7), (6, 5)], [(8, 11), (10, 9)]),
        list(range(8)),
    ),
    "BLACKHOLE_GALAXY": BLACKHOLE_TRAY.machine("blackhole"),
}


@pytest.fixture(scope="session")
def metal_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ttnn's own files by symbolic links, and a stand-in for the compiler that ttnn asks for its version.

    A mock cluster runs no kernel. The fabric's router is compiled all the same; the stand-in answers by copying the
    firmware that the package carries.
    """
    spec = find_spec("ttnn")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    root = tmp_path_factory.mktemp("ttnn")
    for entry in package.iterdir():
        if entry.name != "runtime":
            (root / entry.name).symlink_to(entry)
    (root / "runtime").mkdir()
    for entry in (package / "runtime").iterdir():
        if entry.name != "sfpi":
            (root / "runtime" / entry.name).symlink_to(entry)
    compiler = root / "runtime/sfpi/compiler/bin/riscv-tt-elf-g++"
    compiler.parent.mkdir(parents=True)
    compiler.write_text(_compiler(package))
    compiler.chmod(0o755)
    return root


def _compiler(package: Path) -> str:
    release = dict(
        re.findall(r"^(sfpi_version|sfpi_build)='(.*)'", (package / "tt_metal/sfpi-version").read_text(), re.M)
    )
    firmware = next((package / "tt_metal/pre-compiled").rglob("erisc.elf"))
    return f"""#!/bin/sh
case "$*" in *--version*)
  echo 'riscv-tt-elf-g++ (tenstorrent/sfpi:{release["sfpi_version"]}[{release["sfpi_build"]}]) 15.1.0'; exit 0;;
esac
while [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done
cp '{firmware}' "$out"
echo "$out: $0" > "${{out%.*}}.d"
"""


@dataclass(frozen=True)
class Cluster:
    """Runs programs on one machine."""

    environ: dict[str, str]
    reply: Path

    def run(self, program: str, **environ: str) -> dict[str, object]:
        """Run ``program``, which leaves what it found in the dictionary ``found``."""
        script = f"found = {{}}\n{program}\nimport json\nopen({str(self.reply)!r}, 'w').write(json.dumps(found))\n"
        ended = subprocess.run(
            [sys.executable, "-c", script],
            env={**self.environ, **environ},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ended.returncode == 0, (ended.stdout + ended.stderr)[-3000:]
        return json.loads(self.reply.read_text())


@pytest.fixture
def on(tmp_path: Path, metal_root: Path, monkeypatch: pytest.MonkeyPatch):
    """``on("T3K")`` is that machine; ``on(None)`` is this one, without a card."""
    monkeypatch.chdir(tmp_path)  # ttnn leaves a folder `generated` where it runs

    def make(name: str | None) -> Cluster:
        hidden = ("TT_", "MESH_", "ARCH_")
        environ = {key: value for key, value in os.environ.items() if not key.startswith(hidden)}
        environ["TT_METAL_RUNTIME_ROOT"] = str(metal_root)
        environ["TT_METAL_CACHE"] = str(tmp_path / "cache")
        if name is not None:
            file = tmp_path / f"{name}.yaml"
            file.write_text(MACHINES[name].descriptor())
            environ["TT_METAL_MOCK_CLUSTER_DESC_PATH"] = str(file)
        return Cluster(environ, tmp_path / "found.json")

    return make
