"""How errors are told: one line for people, or one JSON object for programs. Imports nothing heavy."""

import json
import sys


def tell_error(message: str, *, code: str, as_json: bool, who: str = "batchfleet") -> None:
    """Says on stderr what went wrong: `who: message`, or `{"error": {"code", "message"}}`."""
    if as_json:
        print(json.dumps({"error": {"code": code, "message": message}}), file=sys.stderr, flush=True)
    else:
        print(f"{who}: {message}", file=sys.stderr, flush=True)


def words_of(error: OSError) -> str:
    """Returns what the system says of a failure, with the file that it is about."""
    text = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {text}" if error.filename else text
