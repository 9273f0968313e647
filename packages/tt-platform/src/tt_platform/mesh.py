"""Which grid of chips to open. Source: tt-metal contract 3.1."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping

MESH_VARIABLE = "MESH_DEVICE"
VISIBLE_VARIABLE = "TT_VISIBLE_DEVICES"

Grid = tuple[int, int]

# A worker opens a Galaxy as 8 rows of 4; the discovery of data-parallel groups opens it as 4 rows of 8.
WORKER_GALAXY: Grid = (8, 4)
DISCOVERY_GALAXY: Grid = (4, 8)

_GALAXIES = ("TG", "BH-Galaxy")
_PRESETS: Mapping[str, Grid] = {
    "N150": (1, 1),
    "P100": (1, 1),
    "P150": (1, 1),
    "N300": (1, 2),
    "P300": (1, 2),
    "P150x2": (1, 2),
    "N150x4": (1, 4),
    "P150x4": (1, 4),
    "P300x2": (1, 4),
    "T3K": (1, 8),
    "P150x8": (1, 8),
}

MESH_NAMES: tuple[str, ...] = (*_PRESETS, *_GALAXIES)


class MeshError(ValueError):
    """``MESH_DEVICE`` or ``TT_VISIBLE_DEVICES`` cannot be read, or asks for more chips than there are."""


def parse_mesh(value: str, *, galaxy: Grid = WORKER_GALAXY) -> Grid:
    """The grid that a value of ``MESH_DEVICE`` names. Names are case-sensitive, as in tt-metal.

    Args:
        value: a name of :data:`MESH_NAMES`, or a literal such as ``"(1, 8)"``.
        galaxy: the grid of a Galaxy.

    Returns:
        ``(rows, columns)``, both at least 1.

    Raises:
        MeshError: for anything else; the message lists the names.
    """
    name = value.strip()
    if name in _GALAXIES:
        return galaxy
    grid = _PRESETS.get(name) or _literal(name)
    if grid is None:
        raise MeshError(
            f'{MESH_VARIABLE}={value!r} is not a mesh: allowed {", ".join(MESH_NAMES)}, or a shape such as "(1,8)"'
        )
    return grid


def _literal(text: str) -> Grid | None:
    # ast.literal_eval is given plain short text only: it recurses on nesting and can exhaust the stack.
    if len(text) > 32 or text[:1] not in ("(", "[") or text.count("(") + text.count("[") != 1:
        return None
    try:
        value: object = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None
    match value:
        case (int(rows), int(columns)) if type(rows) is int and type(columns) is int and rows >= 1 and columns >= 1:
            return rows, columns
        case _:
            return None


def choose_grid(environ: Mapping[str, str], visible: int, *, distributed: bool = False) -> Grid:
    """The grid a worker opens.

    ``MESH_DEVICE`` unset opens all visible chips in one row. When ``TT_VISIBLE_DEVICES`` narrows the machine to another
    number of chips than ``MESH_DEVICE`` names, the visible chips win, in one row: data-parallel ranks inherit the
    ``MESH_DEVICE`` of the whole machine.

    Args:
        environ: read for ``MESH_DEVICE`` and ``TT_VISIBLE_DEVICES``.
        visible: chips that this process may use.
        distributed: the process is one of several under tt-metal's launcher, so a mesh may span more chips.

    Raises:
        MeshError: no chip is visible, the value cannot be read, or the mesh needs more chips than there are.
    """
    if visible < 1:
        raise MeshError(no_chip_advice(environ))
    value = environ.get(MESH_VARIABLE, "").strip()
    if not value:
        return (1, visible)
    grid = parse_mesh(value)
    if distributed or math.prod(grid) == visible:
        return grid
    if environ.get(VISIBLE_VARIABLE, "").strip():
        return (1, visible)
    if math.prod(grid) > visible:
        raise MeshError(
            f"{MESH_VARIABLE}={value!r} needs {math.prod(grid)} chips, but this machine has {visible}: "
            "choose a smaller mesh, or unset it to use all chips"
        )
    return grid


def no_chip_advice(environ: Mapping[str, str]) -> str:
    """What to tell a user whose ttnn works but sees no chip."""
    visible = environ.get(VISIBLE_VARIABLE, "").strip()
    narrowed = f"{VISIBLE_VARIABLE}={visible} hides them, " if visible else ""
    return (
        f"ttnn is installed but sees no Tenstorrent chip: check that {narrowed}the card is in, the kernel driver "
        "is loaded (/dev/tenstorrent) and `python -m tt_platform`; or set TT_RUNTIME=host to use the software mesh"
    )


def parse_visible_devices(value: str) -> tuple[int, ...] | None:
    """The chip ids of ``TT_VISIBLE_DEVICES``, such as ``"0,1"``; None when it is empty, which means all.

    Raises:
        MeshError: an entry is no whole number of at least 0, or comes twice.
    """
    if not value.strip():
        return None
    entries = [entry.strip() for entry in value.split(",")]
    if not all(entry.isascii() and entry.isdigit() and len(entry) <= 9 for entry in entries):
        raise MeshError(f"{VISIBLE_VARIABLE}={value!r} is not valid: allowed chip ids separated by commas, such as 0,1")
    ids = tuple(int(entry) for entry in entries)
    if len(set(ids)) != len(ids):
        raise MeshError(f"{VISIBLE_VARIABLE}={value!r} names a chip twice: give each id once")
    return ids


def mesh_problem(environ: Mapping[str, str]) -> str | None:
    """What is wrong with ``MESH_DEVICE`` or ``TT_VISIBLE_DEVICES``, before any device is looked at; None if nothing."""
    try:
        if environ.get(MESH_VARIABLE, "").strip():
            parse_mesh(environ[MESH_VARIABLE])
        parse_visible_devices(environ.get(VISIBLE_VARIABLE, ""))
    except MeshError as error:
        return str(error)
    return None
