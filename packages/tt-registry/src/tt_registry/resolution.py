"""The answer to "which class serves this architecture"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .architectures import TTT_BATCH_SIZES, TTT_ROOTS, DataParallel
from .declaration import Declaration, read_declaration
from .names import tt_name

Runtime = Literal["ttnn", "host"]
Source = Literal["override", "bundle", "built-in", "host", "launcher"]


@dataclass(frozen=True, slots=True)
class Resolution:
    """The class that serves an architecture, and what is known of it without importing it.

    architecture:     as in a checkpoint's config.json
    tt_architecture:  the same with the TT prefix; the name that is registered in vLLM
    target:           "module:Class"
    source, origin:   which list it comes from, and the place to look at if it is not the expected one
    variant:          chosen implementation, None when the architecture has one only
    variants:         all implementations, default first; empty when there is one only
    variant_variable: the environment variable that chooses
    data_parallel:    how --data_parallel_size is run
    importable:       the module was found; `reason` says why not. That the class is in it is seen by load_class alone
    search_path:      folders that have to be on sys.path, behind everything else, before the target is imported
    also_bare:        registered in vLLM under `architecture` too
    """

    architecture: str
    target: str
    source: Source
    origin: str
    variant: str | None = None
    variants: tuple[str, ...] = ()
    variant_variable: str | None = None
    data_parallel: DataParallel = "standard"
    multimodal: bool = False
    moe: bool = False
    importable: bool = True
    reason: str = ""
    search_path: tuple[str, ...] = ()
    also_bare: bool = False
    notes: str = ""

    @property
    def tt_architecture(self) -> str:
        return tt_name(self.architecture)

    @property
    def module(self) -> str:
        return self.target.partition(":")[0]

    @property
    def class_name(self) -> str:
        return self.target.partition(":")[2]

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Rows a lane that the class can be loaded with, ascending; empty when nothing is known of it."""
        return TTT_BATCH_SIZES if self.module.startswith(tuple(f"{root}." for root in TTT_ROOTS)) else ()

    @property
    def declaration(self) -> Declaration:
        """What the class declares, read from its source; nothing is imported."""
        return read_declaration(self.module, self.class_name, behind=self.search_path)


class UnknownArchitecture(ValueError):
    """Nothing serves this architecture."""

    def __init__(self, architecture: str, registered: tuple[str, ...], hint: str = "") -> None:
        self.architecture = architecture
        self.registered = registered
        names = ", ".join(map(tt_name, registered)) or "none"
        super().__init__(
            f"No Tenstorrent model serves the architecture {architecture!r}. Registered: {names}. "
            + (
                hint
                or "To add one, put its bundle under EXTRA_MODELS_DIR or name its class in TT_MODEL_CLASS_OVERRIDES."
            )
        )
