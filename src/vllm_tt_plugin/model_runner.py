"""Drop-in name: the part of the worker that runs a step. It is tt_worker.runner.Runner, with that class's methods."""

from tt_worker.runner import Runner as TTModelRunner

__all__ = ["TTModelRunner"]
