"""`EXTRA_MODELS_DIR`: models that arrive as a folder, with no change to any package.

    $EXTRA_MODELS_DIR/
      my-model/
        vllm_metadata.json      {"arch": "LlamaForCausalLM", "main_class": "my_model:Model"}
        my_model.py

A broken bundle is never fatal: it is skipped and says why. Reading changes nothing, `sys.path` included.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from .architectures import DataParallel
from .location import Missing, locate, locate_in
from .names import Target, TargetError, bare_name

VARIABLE = "EXTRA_MODELS_DIR"
METADATA = "vllm_metadata.json"


@dataclass(frozen=True, slots=True)
class Metadata:
    """The content of `vllm_metadata.json`. None = the file does not say.

    Keys that this package does not know belong to other tools; they are kept in `other`.
    """

    architecture: str
    target: Target
    data_parallel: DataParallel | None = None
    multimodal: bool | None = None
    moe: bool | None = None
    other: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True)
class Bundle:
    """A folder that can be served. `folder` goes to the end of `sys.path` before the class is imported."""

    folder: Path
    metadata: Metadata

    @property
    def origin(self) -> str:
        return f"{VARIABLE}/{self.folder.name}"


@dataclass(frozen=True, slots=True)
class Skipped:
    """A folder that cannot be served, and why."""

    folder: Path
    why: str

    def __str__(self) -> str:
        return f"Skipping {VARIABLE} bundle {self.folder}: {self.why}"


@dataclass(frozen=True, slots=True)
class Scan:
    """What a directory of bundles holds, by folder name. At most one bundle for an architecture."""

    bundles: tuple[Bundle, ...] = ()
    skipped: tuple[Skipped, ...] = ()


class BundleError(ValueError):
    """The metadata of a bundle cannot be used."""


def parse_metadata(text: str | bytes) -> Metadata:
    """Read the text of a `vllm_metadata.json`. The schema is in docs/registry.md.

    Raises:
        BundleError: not JSON, not an object, a required key is missing, or a key has a wrong value.
    """
    try:
        raw: object = json.loads(text.decode("utf-8-sig") if isinstance(text, bytes) else text)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{METADATA} is not valid JSON ({error})") from None
    if not isinstance(raw, dict):
        raise BundleError(f"{METADATA} must hold a JSON object, not {_json_type(raw)}")
    data = dict(cast("dict[str, object]", raw))
    architecture = _required(data, "arch")
    if not architecture.isidentifier():
        raise BundleError(f"{METADATA}: 'arch' is {architecture!r}, which is not an architecture name")
    try:
        target = Target.parse(_required(data, "main_class"))
    except TargetError as error:
        raise BundleError(f"{METADATA}: 'main_class': {error}") from None
    return Metadata(
        architecture=bare_name(architecture),
        target=target,
        data_parallel=_data_parallel(data),
        multimodal=_flag(data, "multimodal"),
        moe=_flag(data, "moe"),
        other=data,
    )


def scan_bundles(directory: str | Path) -> Scan:
    """Read every folder of a directory, in the order of their names.

    Folders whose name begins with '.' or '__' are not bundles. A second bundle for the same architecture is skipped.
    """
    root = Path(directory)
    try:
        folders = sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith((".", "__")))
    except OSError as error:
        return Scan(skipped=(Skipped(root, f"{VARIABLE} must name a readable directory ({error.strerror})"),))
    bundles: dict[str, Bundle] = {}
    skipped: list[Skipped] = []
    for folder in folders:
        try:
            bundle = _read(folder, earlier=tuple(bundles.values()))
        except BundleError as error:
            skipped.append(Skipped(folder, str(error)))
        else:
            bundles[bundle.metadata.architecture] = bundle
    return Scan(tuple(bundles.values()), tuple(skipped))


def read_bundles(environ: Mapping[str, str]) -> Scan:
    """The bundles of an environment; none when the variable is unset or empty."""
    directory = environ.get(VARIABLE, "").strip()
    return scan_bundles(directory) if directory else Scan()


def _read(folder: Path, earlier: tuple[Bundle, ...]) -> Bundle:
    try:
        text = (folder / METADATA).read_bytes()
    except OSError as error:
        raise BundleError(f"cannot read {METADATA} ({error.strerror})") from None
    metadata = parse_metadata(text)
    for other in earlier:
        if other.metadata.architecture == metadata.architecture:
            raise BundleError(f"{metadata.architecture} is already served by bundle {other.folder.name}")
    _check_module(folder, metadata.target.module, earlier)
    return Bundle(folder, metadata)


def _check_module(folder: Path, module: str, earlier: tuple[Bundle, ...]) -> None:
    """The main module must be found, and if the folder has it, it must be the folder's that is found.

    The folder stands last on `sys.path`, so an installed package of the same name wins. Serving that one instead,
    silently, would be the wrong class.
    """
    behind = (*(str(bundle.folder) for bundle in earlier), str(folder))
    found = locate(module, behind=behind)
    own = locate_in(module, str(folder))
    if own is not None and (isinstance(found, Missing) or str(found) != str(own)):
        top = module.partition(".")[0]
        raise BundleError(
            f"its module {module!r} is hidden by {locate(top, behind=behind)}, which comes first on sys.path; "
            "rename the bundle's module"
        )
    if isinstance(found, Missing):
        raise BundleError(f"main_class: {found}, nor in the bundle's folder")


def _required(data: dict[str, object], key: str) -> str:
    if key not in data:
        raise BundleError(f"{METADATA} has no key {key!r}; needed are 'arch' and 'main_class'")
    value = data.pop(key)
    if not isinstance(value, str):
        raise BundleError(f"{METADATA}: {key!r} must be a string, not {_json_type(value)}")
    return value.strip()


def _flag(data: dict[str, object], key: str) -> bool | None:
    value = data.pop(key, None)
    if value is None or isinstance(value, bool):
        return value
    raise BundleError(f"{METADATA}: {key!r} must be true or false, not {_json_type(value)}")


def _data_parallel(data: dict[str, object]) -> DataParallel | None:
    value = data.pop("data_parallel", None)
    if value is None or value == "standard" or value == "lanes":
        return cast("DataParallel | None", value)
    raise BundleError(f'{METADATA}: \'data_parallel\' is {value!r}; allowed "standard", "lanes"')


_JSON_TYPES: dict[type[Any], str] = {dict: "an object", list: "an array", str: "a string", bool: "a boolean"}


def _json_type(value: object) -> str:
    return "null" if value is None else _JSON_TYPES.get(type(value), "a number")
