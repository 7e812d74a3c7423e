"""The meaning of exit codes: the one table from which the commands, their help and the docs take them."""

from enum import IntEnum


class ExitCode(IntEnum):
    HOLDS = 0
    VIOLATED = 1
    BAD_INPUT = 2
    UNDECIDED = 3
    INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it
    PIPE_CLOSED = 141  # 128 + SIGPIPE: the verdict was not read, so the code is neither 0 nor 1


MEANINGS = {
    ExitCode.HOLDS: "what was asked holds, or is done",
    ExitCode.VIOLATED: "it does not hold; a witness is printed where there is one",
    ExitCode.BAD_INPUT: "bad usage, bad input, or a package that is not installed",
    ExitCode.UNDECIDED: "undecided: there was nothing to judge by",
    ExitCode.INTERRUPTED: "interrupted",
    ExitCode.PIPE_CLOSED: "whoever read the output closed it before its end",
}
