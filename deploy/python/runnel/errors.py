"""What can go wrong, as exceptions that carry the program's own line."""


class RunnelError(RuntimeError):
    """A run failed. `exit_code` is the program's: 1 the run, 2 wrong input, 130 stopped before the end."""

    def __init__(self, message, exit_code=1):
        super().__init__(message)
        self.exit_code = exit_code


class InputError(RunnelError, ValueError):
    """Wrong input: nothing was trained, and the message names the thing and the fix."""

    def __init__(self, message):
        super().__init__(message, 2)
