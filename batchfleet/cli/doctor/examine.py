"""Runs the checks one after the other; none can keep the others from being run."""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from batchfleet.cli.doctor import part_checks, store_checks
from batchfleet.cli.doctor.findings import Finding, Verdict, fail, skip
from batchfleet.cli.doctor.subject import Subject, find_subject
from batchfleet.errors import BatchfleetError
from batchfleet.settings import SettingsError

Check: TypeAlias = Callable[[Subject], Iterator[Finding]]

BEFORE: Mapping[str, Check] = {"settings": part_checks.check_settings, "database": store_checks.check_database}
NEEDS_DATABASE: Mapping[str, Check] = {
    "workers": store_checks.check_workers,
    "keys": store_checks.check_keys,
    "tenants": store_checks.check_tenants,
}
OTHERS: Mapping[str, Check] = {
    "broker": part_checks.check_broker,
    "blobs": part_checks.check_blobs,
    "s3": part_checks.check_s3,
    "models": part_checks.check_models,
    "tuning": part_checks.check_tuning,
    "disk": part_checks.check_disks,
    "state": part_checks.check_state_dir,
    "secret_key": part_checks.check_secret_key,
    "api": part_checks.check_api,
}
NAMES = (*BEFORE, "schema", "clock", *NEEDS_DATABASE, *OTHERS)
"""All that findings are called by."""


def examine() -> Iterator[Finding]:
    """Yields what all checks find."""
    try:
        subject = find_subject()
    except SettingsError as error:
        yield fail("settings", str(error), "mend the variables named; docs/reference/settings.md has them all")
        return
    usable = True
    for name, check in BEFORE.items():
        for finding in _guarded(name, check, subject):
            usable = usable and finding.verdict is not Verdict.FAIL
            yield finding
    for name, check in NEEDS_DATABASE.items():
        if usable:
            yield from _guarded(name, check, subject)
        else:
            yield skip(name, "the database cannot be asked")
    for name, check in OTHERS.items():
        yield from _guarded(name, check, subject)


def _guarded(name: str, check: Check, subject: Subject) -> Iterator[Finding]:
    """Whatever a check raises is a finding: a doctor that dies of the illness is no help."""
    try:
        yield from check(subject)
    except (BatchfleetError, OSError) as error:
        yield fail(name, str(error) or type(error).__name__)
    except Exception as error:  # noqa: BLE001 - told, and with its kind
        yield fail(name, f"the check itself failed: {type(error).__name__}: {error}")
