"""`batchfleet worker --tune`: measures this machine and tells what was found."""

import os
import sys
from pathlib import Path

from batchfleet.cli.options import print_json
from batchfleet.cli.running import running_environment, up_folder
from batchfleet.embedded.exits import Exit
from batchfleet.embedded.telling import tell_error, words_of
from batchfleet.embedded.tune.report import as_json as report_json
from batchfleet.embedded.tune.report import as_text
from batchfleet.embedded.tune.run import measure
from batchfleet.errors import BatchfleetError
from batchfleet.settings import Settings, SettingsError, read_settings

_WHO = "batchfleet worker --tune"


def run_tune(*, as_json: bool) -> Exit:
    """Measures, with progress on stderr; returns the exit code."""
    try:
        if running_environment():
            _say("a fleet runs on this machine: figures will be of what it leaves over")
        measured = measure(_settings(), _say)
    except SettingsError as error:
        tell_error(str(error), code=error.code, as_json=as_json, who=_WHO)
        return Exit.CONFIG
    except BatchfleetError as error:
        tell_error(str(error), code=error.code, as_json=as_json, who=_WHO)
        return Exit.FAILED
    except OSError as error:  # the state folder cannot be written
        tell_error(words_of(error), code="system_error", as_json=as_json, who=_WHO)
        return Exit.FAILED
    if as_json:
        print_json(report_json(measured))
    else:
        print(as_text(measured))
    return Exit.OK


def _settings() -> Settings:
    """Returns the settings of the environment; where it names no models, those of `batchfleet up` are measured."""
    folder = up_folder().resolve()
    if "BATCHFLEET_MODELS_URL" not in os.environ and _holds_models(folder):
        os.environ["BATCHFLEET_MODELS_URL"] = f"file://{folder}/models"
        os.environ.setdefault("BATCHFLEET_STATE_DIR", f"{folder}/state")
    return read_settings()


def _holds_models(folder: Path) -> bool:
    return (folder / "models").is_dir()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
