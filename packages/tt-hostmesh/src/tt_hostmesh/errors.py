"""The two errors of the software mesh."""


class HostMeshError(RuntimeError):
    """A device call that real hardware would refuse or hang on: wrong mesh, fabric, order of calls, use after close."""


class ContractError(HostMeshError):
    """A call that breaks the contract of tt-metal's model classes. Raised in strict mode.

    The message names the model class, the method and the clause, so that the caller's author knows what to read.
    """

    def __init__(self, where: str, clause: str, text: str) -> None:
        super().__init__(f"{where}: tt-metal contract {clause}: {text}")
        self.where = where
        self.clause = clause
        self.text = text

    def __reduce__(self) -> tuple[type["ContractError"], tuple[str, str, str]]:
        return ContractError, (self.where, self.clause, self.text)
