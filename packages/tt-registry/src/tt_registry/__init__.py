"""Which Tenstorrent model class serves which architecture, and what it can do."""

from .architectures import Architecture, DataParallel, UnknownVariant, Variant
from .bundles import Bundle, BundleError, Metadata, Scan, Skipped, parse_metadata, scan_bundles
from .capabilities import Capabilities, CapabilityError
from .loading import ModelNotImportable, extend_path, load_class
from .names import Target, TargetError, bare_name, tt_name
from .overrides import Override, OverrideError, parse_overrides
from .resolution import Resolution, Runtime, Source, UnknownArchitecture, known, resolve

__all__ = [
    "Architecture",
    "Bundle",
    "BundleError",
    "Capabilities",
    "CapabilityError",
    "DataParallel",
    "Metadata",
    "ModelNotImportable",
    "Override",
    "OverrideError",
    "Resolution",
    "Runtime",
    "Scan",
    "Skipped",
    "Source",
    "Target",
    "TargetError",
    "UnknownArchitecture",
    "UnknownVariant",
    "Variant",
    "bare_name",
    "extend_path",
    "known",
    "load_class",
    "parse_metadata",
    "parse_overrides",
    "resolve",
    "scan_bundles",
    "tt_name",
]
