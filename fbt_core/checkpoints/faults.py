"""The errors that a file can cause. Each says what was got, what was expected, and what to do about it."""


class CheckpointError(Exception):
    """A file that cannot be used as a checkpoint.

    Parameters are sentence fragments: ``got`` (what the file holds), ``expected`` (what was needed) and
    ``remedy`` (what its owner can do). None of them may hold text of the file's choosing unquoted.
    """

    def __init__(self, got: str, expected: str, remedy: str) -> None:
        self.got, self.expected, self.remedy = got, expected, remedy
        super().__init__(f"got {got}; expected {expected}. {remedy}")
