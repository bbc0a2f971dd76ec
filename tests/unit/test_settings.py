"""Settings are checked at start, and what is wrong is named by its variable."""

import subprocess
import sys
from pathlib import Path

import pytest

from api.parts import default_tenant
from batchfleet.settings import EXIT_CONFIG, Settings, SettingsError, bucket_of, folder_of, read_settings


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("DATABASE_URL", "mysql://localhost/x", "must be sqlite"),
        ("DATABASE_URL", "postgresql+psycopg://me:hunter2@host/x?foo=bar", 'invalid connection option "foo"'),
        ("DATABASE_URL", "postgresql+psycopg://me:hunter2@host/x?sslmode=bogus", 'invalid sslmode value: "bogus"'),
        ("DATABASE_URL", "postgresql+psycopg://me:hunter2@host/x?connect_timeout=abc", "its connect_timeout must be"),
        ("DATABASE_URL", "postgresql+psycopg://me:hunter2@host:abc/x", "has no valid port"),
        ("DATABASE_URL", "postgresql+psycopg://me:hunter2@host:99999/x", "has no valid port"),
        ("DATABASE_URL", "postgresql+psycopg://me@/x?host=a:1&host=b:99999", "has no valid port"),
        ("BROKER_URL", "amqp://localhost", "must be none, redis"),
        ("BROKER_URL", "redis://:hunter2@localhost/zero", "must be the number of a database"),
        ("BROKER_URL", "redis+socket:///x?virtual_host=zero", "virtual_host must be the number"),
        ("BROKER_URL", "redis://localhost:abc/0", "has no valid port"),
        ("BROKER_URL", "redis://localhost:99999/0", "has no valid port"),
        ("BROKER_URL", "redis://localhost/0?foo=1", "has no option 'foo'"),
        ("BROKER_URL", "redis://localhost/0?socket_timeout=soon", "Invalid value for 'socket_timeout'"),
        ("BLOB_URL", "relative/path", "must be file:///folder"),
        ("BLOB_URL", "s3://", "or s3://bucket/prefix"),
        ("BLOB_URL", "s3://Upper/x", "or s3://bucket/prefix"),
        ("BLOB_URL", "s3://bucket/a//b", "or s3://bucket/prefix"),
        ("BLOB_URL", "s3://bucket/../x", "or s3://bucket/prefix"),
        ("BLOB_URL", "s3://bucket/with space", "or s3://bucket/prefix"),
        ("BLOB_URL", "s3://bucket/" + "x" * 400, "400 characters in all"),
        ("BLOB_URL", "gs://bucket/x", "or s3://bucket/prefix"),
        ("S3_ENDPOINT_URL", "s3:9000", "must be http://host:port"),
        ("S3_ENDPOINT_URL", "http://me:secret@host", "without a user or password"),
        ("S3_ENDPOINT_URL", "http://host:port", "must be http://host:port"),
        ("S3_ENDPOINT_URL", "none", "must be http://host:port"),
        ("S3_PUBLIC_URL", "host", "or none"),
        ("PRESIGN_S", "604801", "less than or equal to 604800"),
        ("MODELS_URL", "file://host/folder", "must be file:///folder"),
        ("API_PORT", "70000", "less than or equal to 65535"),
        ("WINDOW_S", "0", "greater than 0"),
        ("WINDOW_S", "nan", "must be a number"),
        ("WORKER_THREADS", "two", "valid integer"),
        ("LOG_LEVEL", "loud", "'debug', 'info'"),
        ("WORKER_DEVICES", "auto,none", "'auto' is no GPU"),
        ("WORKER_DEVICES", "0,none", "'none' is no GPU"),
        ("WORKER_DEVICES", "all", "must be auto, none, or GPUs by comma"),
        ("WORKER_DEVICES", "gpu0", "'gpu0' is no GPU"),
        ("WORKER_DEVICES", "-1", "'-1' is no GPU"),
        ("WORKER_DEVICES", "0,,1", "'' is no GPU"),
    ],
)
def test_a_wrong_setting_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str) -> None:
    monkeypatch.setenv(f"BATCHFLEET_{name}", value)

    with pytest.raises(SettingsError) as caught:
        read_settings()

    assert f"BATCHFLEET_{name}" in str(caught.value)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_URL", "postgresql+psycopg://me:p%40ss@host:5432/x?sslmode=require&target_session_attrs=read-write"),
        ("DATABASE_URL", "postgresql+psycopg:///x?host=a:5432&host=b:5433&connect_timeout=3"),
        ("DATABASE_URL", "postgresql+psycopg://me@/x?host=/run/postgresql"),
        ("DATABASE_URL", "postgresql+psycopg://me@[::1]:5432/x"),
        ("BROKER_URL", "redis://:p%40ss@localhost:6379/1"),
        ("BROKER_URL", "rediss://localhost?ssl_cert_reqs=none"),
        ("BROKER_URL", "redis+socket:///run/redis.sock?virtual_host=3"),
    ],
)
def test_urls_with_options_are_taken_as_they_are(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """Nothing is connected, or looked up, to find out."""
    monkeypatch.setenv(f"BATCHFLEET_{name}", value)

    assert getattr(read_settings(), name.lower()) == value


def test_a_password_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHFLEET_DATABASE_URL", "mysql://me:hunter2@localhost/x")

    with pytest.raises(SettingsError) as caught:
        read_settings()

    assert "hunter2" not in str(caught.value)


def test_a_lease_outlives_a_late_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHFLEET_LEASE_TTL_S", "10")

    with pytest.raises(SettingsError, match="BATCHFLEET_LEASE_TTL_S=10 must be at least three times"):
        read_settings()


def test_lists_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHFLEET_WORKER_MODELS", "a, b,,c ")

    assert read_settings().worker_models == ("a", "b", "c")


@pytest.mark.parametrize(
    ("url", "bucket", "prefix"),
    [
        ("s3://bucket", "bucket", ""),
        ("s3://bucket/", "bucket", ""),
        ("s3://my.bucket-1/a/b_c=d.e", "my.bucket-1", "a/b_c=d.e"),
        ("s3://bucket/results/", "bucket", "results"),
    ],
)
def test_a_bucket_url_has_a_bucket_and_may_have_a_prefix(
    monkeypatch: pytest.MonkeyPatch, url: str, bucket: str, prefix: str
) -> None:
    monkeypatch.setenv("BATCHFLEET_BLOB_URL", url)

    assert bucket_of(read_settings().blob_url) == (bucket, prefix)


def test_an_endpoint_may_be_left_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """As compose files leave what is not set."""
    monkeypatch.setenv("BATCHFLEET_S3_ENDPOINT_URL", "")
    monkeypatch.setenv("BATCHFLEET_S3_PUBLIC_URL", "none")

    assert (read_settings().s3_endpoint_url, read_settings().s3_public_url) == (None, "none")


def test_a_folders_url_may_hold_escapes() -> None:
    assert folder_of(Path("/tmp/a b#c").as_uri()) == Path("/tmp/a b#c")
    with pytest.raises(ValueError, match="not a file URL"):
        folder_of("s3://bucket/prefix")


@pytest.mark.parametrize(
    ("service", "name", "value"),
    [
        ("api", "DATABASE_URL", "mysql://localhost/x"),
        ("scheduler", "DATABASE_URL", "postgresql+psycopg://me@localhost/x?foo=bar"),
        ("workers", "BROKER_URL", "redis://localhost/zero"),
    ],
)
def test_every_service_says_what_is_wrong_in_a_line_and_is_not_worth_a_restart(
    service: str, name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"BATCHFLEET_{name}", value)

    ended = subprocess.run([sys.executable, "-m", service], capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode == EXIT_CONFIG
    assert f"BATCHFLEET_{name}: " in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_a_prefix_that_is_none_is_named_by_its_place() -> None:
    settings = Settings(input_prefixes=("s3://bucket/a/", "s3://Upper/b/"))

    with pytest.raises(SettingsError, match="BATCHFLEET_INPUT_PREFIXES: prefix 2 of 2 has no valid bucket name"):
        default_tenant(settings)


@pytest.mark.parametrize(
    ("service", "variable", "value"),
    [
        ("api", "METRICS_DIR", "/dev/null/x"),
        ("api", "BLOB_URL", "file:///dev/null/x"),
        ("scheduler", "METRICS_DIR", "/dev/null/x"),
        ("workers", "METRICS_DIR", "/dev/null/x"),
        ("workers", "STATE_DIR", "/dev/null/x"),
        ("workers", "BLOB_URL", "file:///dev/null/x"),
    ],
)
def test_a_folder_that_cannot_be_is_no_reason_for_a_traceback(
    service: str, variable: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = {"STATE_DIR": str(tmp_path), "BLOB_URL": tmp_path.as_uri(), "MODELS_URL": tmp_path.as_uri()}
    for name, folder in folders.items():
        monkeypatch.setenv(f"BATCHFLEET_{name}", folder)
    monkeypatch.setenv("BATCHFLEET_DATABASE_URL", f"sqlite:///{tmp_path}/x.db")
    monkeypatch.setenv("BATCHFLEET_API_PORT", "0")
    monkeypatch.setenv(f"BATCHFLEET_{variable}", value)

    ended = subprocess.run([sys.executable, "-m", service], capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode == EXIT_CONFIG, ended.stderr
    assert "/dev/null" in ended.stderr
    assert "Traceback" not in ended.stderr
