"""What Inspect AI imports by the entry point `inspect_ai` of the package, to find what is ours."""

import opensafeintent.interop.inspect.task  # noqa: F401  # its decorators register
