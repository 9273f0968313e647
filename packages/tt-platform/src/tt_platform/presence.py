"""Whether this process had a device and gave it back."""

from __future__ import annotations

import threading

GIVEN_BACK = threading.Event()
"""Set when a device session of this process closes; cleared when one opens, and when a new engine is configured."""
