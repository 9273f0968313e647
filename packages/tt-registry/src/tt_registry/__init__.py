"""Which Tenstorrent model class serves which architecture, and what it can do."""

from .architectures import Architecture, DataParallel, UnknownVariant, Variant
from .bundles import Bundle, BundleError, Metadata, Scan, Skipped, parse_metadata, scan_bundles
from .capabilities import Capabilities, CapabilityError
from .declaration import Declaration
from .loading import ModelNotImportable, extend_path, load_class, models_for
from .lookup import known, resolve
from .names import Target, TargetError, bare_name, tt_name
from .overrides import Override, OverrideError, parse_overrides
from .plan import Entry, Plan, registration_plan
from .resolution import Resolution, Runtime, Source, UnknownArchitecture

__all__ = [
    "Architecture",
    "Bundle",
    "BundleError",
    "Capabilities",
    "CapabilityError",
    "DataParallel",
    "Declaration",
    "Entry",
    "Metadata",
    "ModelNotImportable",
    "Override",
    "OverrideError",
    "Plan",
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
    "models_for",
    "parse_metadata",
    "parse_overrides",
    "registration_plan",
    "resolve",
    "scan_bundles",
    "tt_name",
]
