"""Text that any database takes: error messages come from models and runtimes, and may hold anything."""

MAX_MESSAGE_CHARS = 8_192
"""A longer message is cut: it is for a person, and lives in a row that is rewritten at every change of state."""

_CUT = " … (cut)"
_NUL = "\x00"


def storable(text: str) -> str:
    """Returns the text, shortened if very long, with U+FFFD for NUL and for halves of surrogate pairs."""
    if len(text) > MAX_MESSAGE_CHARS:
        text = text[: MAX_MESSAGE_CHARS - len(_CUT)] + _CUT
    if text.isascii():
        return text.replace(_NUL, "\ufffd") if _NUL in text else text
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.replace(_NUL, "\ufffd")
