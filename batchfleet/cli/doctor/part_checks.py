"""Checks of everything but the database: settings, broker, blobs, S3, models, disks, secrets, the API itself."""

import contextlib
import http.client
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from batchfleet.broker.connect import connect_broker, has_broker
from batchfleet.broker.hint import Flow
from batchfleet.cli.doctor.findings import Finding, fail, ok, skip, warn
from batchfleet.cli.doctor.subject import Subject
from batchfleet.cli.variables import unknown_variables, unread_secrets
from batchfleet.cli.verified import verify_models
from batchfleet.database.sqlite import database_file
from batchfleet.embedded.tune.recall import here, recall_here
from batchfleet.errors import BatchfleetError, BrokerUnavailableError, UnavailableError
from batchfleet.inference.tuning import measured_elsewhere, tuning_file, unmeasured
from batchfleet.jobs.job import Lane
from batchfleet.models.repository import ModelRepository
from batchfleet.objects.s3_client import S3Terms
from batchfleet.results.connect import connect_blobs
from batchfleet.settings import folder_of
from batchfleet.telemetry import Metrics

LOW_BYTES = 1024**3
LOWEST_BYTES = 128 * 1024**2
_ANSWER_S = 3.0
_QUICK = S3Terms(connect_s=3.0, read_s=5.0, attempts=2)


def check_settings(subject: Subject) -> Iterator[Finding]:
    """Says whose settings these are, and which variables mean nothing."""
    yield ok("settings", f"{subject.source} can work")
    for name, near in unknown_variables(subject.environ):
        yield warn("settings", f"{name} is no setting: it is ignored", f"did you mean {near}?" if near else None)
    for path, near in unread_secrets(subject.environ):
        yield warn("settings", f"no setting reads the file {path}", f"did you mean {near}?" if near else None)


def check_broker(subject: Subject) -> Iterator[Finding]:
    """Asks the broker for the depth of a queue."""
    url = subject.settings.broker_url
    if not has_broker(url):
        yield ok("broker", "none: workers look for work in the database")
        return
    broker = connect_broker(url, metrics=Metrics())
    try:
        broker.depth(Flow("doctor", Lane.BULK))
    except BrokerUnavailableError as error:
        told = f"{url}: {error}"
        yield fail("broker", told, "start it, or mend BATCHFLEET_BROKER_URL; jobs are taken, and found a little later")
    else:
        yield ok("broker", f"{url} answers")
    finally:
        broker.close()


def check_blobs(subject: Subject) -> Iterator[Finding]:
    """Writes, reads, and removes a blob."""
    url = subject.settings.blob_url
    if url.startswith("file:") and not folder_of(url).exists():  # not made here: a look leaves nothing behind
        there = _nearest(folder_of(url))
        if os.access(there, os.W_OK | os.X_OK):
            yield ok("blobs", f"{url} is not there yet, and can be made")
        else:
            yield fail("blobs", f"{url} is not there, and cannot be made in {there}", "mend BATCHFLEET_BLOB_URL")
        return
    key, data = f"doctor/{uuid.uuid4().hex}", os.urandom(64)
    advice = "mend BATCHFLEET_BLOB_URL, or the permissions there: large results have nowhere to go"
    try:
        blobs = connect_blobs(subject.settings, _QUICK)
        try:
            blobs.put(key, data)
            same = blobs.get(key) == data
            blobs.delete(key)
        finally:
            blobs.close()
    except (UnavailableError, OSError) as error:
        yield fail("blobs", f"{url}: {error}", advice)
        return
    if same:
        yield ok("blobs", f"{url} takes, gives back and removes")
    else:
        yield fail("blobs", f"{url} gives back other bytes than it was given", advice)


def check_s3(subject: Subject) -> Iterator[Finding]:
    """Says which credentials are used, if S3 is."""
    settings = subject.settings
    if not settings.blob_url.startswith("s3:") and not settings.input_prefixes and not settings.output_prefixes:
        yield skip("s3", "not used by these settings")
        return
    import boto3.session  # noqa: PLC0415 - 0.3 s, which only users of S3 pay

    credentials = boto3.session.Session().get_credentials()
    endpoint = settings.s3_endpoint_url or "AWS"
    if credentials is None:
        advice = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role"
        yield fail("s3", f"{endpoint}: there are no credentials", advice)
    else:
        shown = f"{credentials.access_key[:4]}…" if credentials.access_key else "?"
        yield ok("s3", f"{endpoint} with the key {shown} (found by {credentials.method})")


def check_models(subject: Subject) -> Iterator[Finding]:
    """Compares every file of the repository with its digest."""
    repository = ModelRepository(folder_of(subject.settings.models_url))
    checked = verify_models(repository)
    for found in checked:
        if found.error is not None:
            yield fail("models", f"{found.name} {found.version}: {found.error}", "publish it again")
    right = [f"{found.name} {found.version}" for found in checked if found.error is None]
    if right:
        yield ok("models", f"{repository.root} has {', '.join(right)}, as published")
    elif not checked:
        yield warn("models", f"none in {repository.root}", "mend BATCHFLEET_MODELS_URL, or publish one there")


def check_tuning(subject: Subject) -> Iterator[Finding]:
    """Says whether this machine was tuned, and whether that still holds for it and its models."""
    state_dir, advice = subject.settings.state_dir, "measure again when the machine is quiet: batchfleet worker --tune"
    tuning = recall_here(state_dir)
    if tuning is None and measured_elsewhere(tuning_file(state_dir), here()):
        yield warn("tuning", "other cores, another CPU or other runtimes than when it was measured", advice)
        return
    if tuning is None:
        yield skip("tuning", "never measured: one worker a core (batchfleet worker --tune finds out what is faster)")
        return
    missing = unmeasured(tuning, _newest_digests(ModelRepository(folder_of(subject.settings.models_url))))
    if missing:
        yield warn("tuning", f"{len(missing)} model(s) came after {tuning.measured_at}, when it was measured", advice)
    elif any(trial.doubtful for trial in tuning.best.values()):
        yield warn("tuning", f"measured beside other work, {tuning.measured_at}: the figures are doubtful", advice)
    else:
        told = f"{tuning.workers} worker(s) with {tuning.threads} thread(s) each, measured {tuning.measured_at}"
        yield ok("tuning", told)


def check_disks(subject: Subject) -> Iterator[Finding]:
    """Looks at the room where files are written, one finding a file system."""
    seen: set[int] = set()
    for folder in _folders(subject):
        there = _nearest(folder)
        device = there.stat().st_dev
        if device in seen:
            continue
        seen.add(device)
        free = shutil.disk_usage(there).free
        told = f"{free / 1024**3:.1f} GiB free at {there}"
        if free < LOWEST_BYTES:
            yield fail("disk", told, "make room: a full disk stops submissions and results")
        elif free < LOW_BYTES:
            yield warn("disk", told, "make room soon")
        else:
            yield ok("disk", told)


def check_state_dir(subject: Subject) -> Iterator[Finding]:
    """Says whether workers can keep their journals."""
    folder = subject.settings.state_dir
    if os.access(_nearest(folder), os.W_OK | os.X_OK):
        yield ok("state", f"{folder} can be written")
    else:
        yield warn("state", f"{folder} cannot be written", "workers of this machine need it: see BATCHFLEET_STATE_DIR")


def check_secret_key(subject: Subject) -> Iterator[Finding]:
    """Says whether webhook secrets are sealed."""
    stated = subject.settings.secret_key
    keys = [key for key in stated.get_secret_value().split(",") if key.strip()] if stated else []
    if keys:
        yield ok("secret_key", f"{len(keys)} set; the first seals")
        return
    told = "BATCHFLEET_SECRET_KEY is not set: secrets of webhooks lie readable in the database"
    how = "head -c 32 /dev/urandom | base64"
    yield warn("secret_key", told, f"set one: {how}")


def check_api(subject: Subject) -> Iterator[Finding]:
    """Asks the API whether it is ready, if one answers."""
    parts = urlsplit(subject.url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=_ANSWER_S)
    named = [name for name in subject.settings.api_hosts if name != "*"]
    try:
        connection.request("GET", "/readyz", headers={"Host": named[0]} if named else {})
        answer = connection.getresponse()
        text = answer.read(2_000).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        yield skip("api", f"nothing answers at {subject.url} ({error})")
        return
    finally:
        connection.close()
    if answer.status == http.client.OK:
        yield ok("api", f"{subject.url} is ready")
    else:
        yield fail("api", f"{subject.url} is not ready: {answer.status} {text}", "see its log")


def _newest_digests(repository: ModelRepository) -> list[str]:
    """Returns the digest of each model's newest version; what is not as published is told of elsewhere."""
    digests = []
    for name in repository.models():
        with contextlib.suppress(BatchfleetError, OSError):
            digests.append(repository.open(repository.resolve(name)).digest)
    return digests


def _nearest(folder: Path) -> Path:
    """Returns the folder, or the first above it that exists."""
    whole = folder.absolute()
    return next(path for path in (whole, *whole.parents) if path.exists())


def _folders(subject: Subject) -> list[Path]:
    settings = subject.settings
    folders = [settings.state_dir, folder_of(settings.models_url)]
    if settings.blob_url.startswith("file:"):
        folders.append(folder_of(settings.blob_url))
    if settings.database_url.startswith("sqlite"):
        folders.append(database_file(settings.database_url).parent)
    return folders
