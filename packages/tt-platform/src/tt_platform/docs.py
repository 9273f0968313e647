"""The pages of ``docs/`` that are generated from the option table and the rules."""

from __future__ import annotations

import dataclasses
import json

from tt_platform.options import OPTIONS_KEY, TTOptions
from tt_platform.rules import RULES

_OPTIONS_HEAD = f"""# Options

Options of the plugin are the keys of `additional_config["{OPTIONS_KEY}"]`:

```
vllm serve MODEL --additional-config '{{"{OPTIONS_KEY}": {{"trace_mode": "none"}}}}'
vllm serve MODEL --additional-config.{OPTIONS_KEY}.trace_mode none
```

A wrong type or value stops the launch and is named in the error. An unknown key is a warning.
This page is generated: `python -m tt_platform options > docs/options.md`.

| key | allowed | default | purpose |
|---|---|---|---|
"""

_RULES_HEAD = """# Configuration rules

Every launch is checked by these rules, in this order, before a device is opened. A rule refuses the launch with one
line, or changes a setting and says so in the log, or only says something. Running them again changes nothing.
This page is generated: `python -m tt_platform rules > docs/rules.md`.

| rule | why |
|---|---|
"""


def options_page() -> str:
    """The text of ``docs/options.md``."""
    return _OPTIONS_HEAD + "".join(map(_option_row, dataclasses.fields(TTOptions)))


def _option_row(field: dataclasses.Field[object]) -> str:
    kind, purpose = field.metadata["kind"], field.metadata["purpose"]
    return f"| `{field.name}` | {kind.allowed} | {_default(field.default)} | {purpose} |\n"


def _default(value: object) -> str:
    return "unset" if value is None else f"`{json.dumps(value)}`"


def rules_page() -> str:
    """The text of ``docs/rules.md``."""
    return _RULES_HEAD + "".join(f"| `{rule.name}` | {rule.docs} |\n" for rule in RULES)
