"""What a command says when it cannot do what it was asked."""


class CliError(Exception):
    """One clear line for the person at the terminal; the process exits with `code`."""

    def __init__(self, message: str, *, code: int = 1) -> None:
        super().__init__(message)
        self.code = code
