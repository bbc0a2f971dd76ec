"""Exceptions of code that is not ours (tasks, runtimes, tokenisers): caught whole, and put into words safely.

Such code may raise what is no `Exception`: a panic of a Rust library is a `BaseException`, and so is a `SystemExit`
somebody thought wise. And an exception may fail again where it is asked for its text. Either would otherwise pass by
the code that finds the one item at fault, and end the process with all of them accused.
"""

import threading
from typing import Final

_MOST_CHARACTERS: Final = 2_000


def describe(error: BaseException) -> str:
    """Returns the words of an exception, or its type's name where it has none; never raises.

    What a database or a log cannot hold (lone surrogates, NUL, texts without end) is replaced or cut.
    """
    name = type(error).__name__
    try:
        text = str(error)
        text = text[:_MOST_CHARACTERS].encode("utf-8", "replace").decode("utf-8").replace("\0", "?")
    except BaseException:  # noqa: BLE001 - that is the point
        return f"{name}, which cannot say what is wrong"
    return text if text.strip() else name


def ends_the_process(error: BaseException) -> bool:
    """Returns whether an exception that foreign code let through means that the process is to end.

    Python delivers signals to the main thread only; in any other, nobody but the code that ran can have raised it.
    """
    return not isinstance(error, Exception) and threading.current_thread() is threading.main_thread()
