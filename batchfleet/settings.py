"""Settings of all processes: environment variables with the prefix `BATCHFLEET_`, validated once at start.

Each is documented in `docs/reference/settings.md`; a test holds the page to this module.
"""

import ipaddress
from pathlib import Path
from typing import Annotated, Final, Literal, Self
from urllib.parse import unquote, urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from batchfleet.errors import BatchfleetError

EXIT_CONFIG: Final = 78
"""Exit code of a process whose settings cannot be used (EX_CONFIG): a supervisor need not try again."""

_PREFIX: Final = "BATCHFLEET_"
_DATABASES: Final = ("sqlite:///", "postgresql+psycopg://")
_BROKERS: Final = ("redis://", "rediss://", "redis+socket://")

Seconds = Annotated[float, Field(gt=0, le=30 * 24 * 3600, allow_inf_nan=False)]
Count = Annotated[int, Field(gt=0, le=2**40)]
Retention = Annotated[float, Field(ge=60, le=10 * 366 * 24 * 3600, allow_inf_nan=False)]


class SettingsError(BatchfleetError):
    """A setting cannot be used; the message names the environment variable."""

    code = "settings_invalid"


class UnsafeHostError(SettingsError):
    """The host is open to others, and there are no keys that would keep strangers out."""

    code = "unsafe_host"


class Settings(BaseSettings):
    """All settings, with the defaults of a single machine."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, extra="ignore", frozen=True)

    # -- where things are ---------------------------------------------------------------------------------
    database_url: str = "sqlite:///batchfleet.db"
    """SQLAlchemy URL of the truth: `sqlite:///path` or `postgresql+psycopg://…`."""
    broker_url: str = "none"
    """`redis://…`, `redis+socket:///path`, or `none` (workers then find work in the database)."""
    blob_url: str = "file:///var/lib/batchfleet/blobs"
    """Where large results go: `file:///folder` or `s3://bucket/prefix`."""
    models_url: str = "file:///var/lib/batchfleet/models"
    """The model repository: `file:///folder`."""
    s3_endpoint_url: str | None = None
    """An S3 server other than AWS: `http://host:port`. Credentials and region are found as boto3 finds them."""
    s3_path_style: bool | None = None
    """Whether buckets are named in the path; default: yes with an endpoint of one's own, else no."""
    secret_key: SecretStr | None = None
    """Seals what must be kept readable in the database (webhook secrets); several, comma-separated: the first seals."""
    state_dir: Path = Path("/var/lib/batchfleet/state")
    """This machine's own files: journals, measurements."""
    metrics_dir: Path | None = None
    """Folder in which the processes of one machine share their metrics; None keeps them apart."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"
    otlp_endpoint: str | None = None
    """Where traces are sent, `http://host:4318`; needs the extra `otel`. None: no traces."""
    trace_sample: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of the traces that begin here which are kept; a caller's own decision is respected."""

    # -- HTTP ---------------------------------------------------------------------------------------------
    api_host: str = "127.0.0.1"
    api_port: Annotated[int, Field(ge=0, le=65535)] = 8080
    api_hosts: Annotated[tuple[str, ...], NoDecode] = ()
    """Names that the `Host` header may have, comma-separated, `*` for any; empty for those of loopback."""
    require_keys: bool | None = None
    """Whether requests need an API key; default: unless the API listens on loopback."""
    key_cache_s: Seconds = 5.0
    """How long an API process trusts what it knows of a key: a revoked one works on for so long at most."""
    input_prefixes: Annotated[tuple[str, ...], NoDecode] = ()
    """Where an `input_uri` of the tenant `default` may lie while no `tenants` command has said so: `s3://bucket/…/`."""
    output_prefixes: Annotated[tuple[str, ...], NoDecode] = ()
    """Likewise for `output_uri`."""
    callbacks: bool = True
    """Whether jobs may have a `callback_url`."""
    presign_s: Annotated[int, Field(ge=1, le=7 * 24 * 3600)] = 900
    """How long a link to a large result in S3 works."""
    max_body_bytes: Count = 64 * 1024 * 1024
    """A larger request body is answered 413."""
    max_item_bytes: Count = 1024 * 1024
    """Size of one input, as JSON."""
    max_bulk_jobs: Count = 10_000
    """Jobs in one bulk request."""
    max_queued_jobs: Count = 1_000_000
    """Queued jobs over which a submission is answered 429."""
    inline_result_bytes: Count = 256 * 1024
    """Results up to this size are shown inside the job; larger ones have their own URL."""
    result_row_bytes: Count = 1024 * 1024
    """Results up to this size live in the database row; larger ones in the blob store."""
    long_poll_max_s: Seconds = 60.0
    default_run_timeout_s: Seconds = 300.0
    default_max_attempts: Count = 3
    ring_lookup_s: Seconds = 1.5
    """Safety net: how often all waiting ids are looked up when no ring comes."""

    # -- workers ------------------------------------------------------------------------------------------
    worker_name: Annotated[str, Field(max_length=100)] = ""
    """Name of the worker in leases and journals; default: host name and slot. Two at once must differ."""
    worker_models: Annotated[tuple[str, ...], NoDecode] = ()
    """Names of the models to serve, comma-separated; empty for all of the repository."""
    worker_threads: Annotated[int, Field(ge=1, le=256)] = 1
    """Threads of one forward pass."""
    worker_variant: str = "auto"
    """Variant of the models to run (`int8`, `bf16`, …); `auto` takes the fastest measured on this machine."""
    worker_providers: Annotated[tuple[str, ...], NoDecode] = ()
    """Execution providers that may be used (`cpu`, `openvino`, `cuda`, …), comma-separated; empty for all."""
    window_items: Annotated[int, Field(ge=1, le=65536)] = 1024
    """Items that a worker holds claimed at most."""
    window_s: Seconds = 2.0
    """Seconds of work that a worker holds claimed at most."""
    drain_s: Seconds = 25.0
    """How long a worker that was told to stop goes on finishing passes before it hands back the rest."""
    heartbeat_s: Seconds = 5.0
    lease_ttl_s: Seconds = 15.0
    """A worker silent for longer is dead, and its jobs are rescued."""

    # -- scheduler ----------------------------------------------------------------------------------------
    sweep_s: Seconds = 1.0
    """How often the scheduler looks for work to announce, expire or rescue."""
    announced_hints: Count = 512
    """Hints of one flow in the broker over which the relay holds back at most; it begins far below."""
    control_threads: Annotated[int, Field(ge=1, le=64)] = 4
    """Tasks of the control plane (webhooks, outputs, retention) that one scheduler runs at once."""
    result_retention_s: Retention = 7 * 24 * 3600.0
    """How long results are kept after their job ended; asked for later, they are gone (410)."""
    job_retention_s: Retention = 30 * 24 * 3600.0
    """How long jobs are remembered after they ended, and deliveries after they were made."""
    orphan_grace_s: Retention = 24 * 3600.0
    """Age over which a blob that no job names is removed; above the longest run timeout by a lease."""
    webhook_timeout_s: Annotated[float, Field(gt=0, le=60)] = 15.0
    """How long one attempt of a webhook may take, from connecting to the answer's head."""
    webhook_networks: Annotated[tuple[str, ...], NoDecode] = ()
    """Networks (`10.0.0.0/8`, comma-separated) that webhooks may reach though they are not public."""

    @field_validator(
        "worker_models",
        "worker_providers",
        "api_hosts",
        "input_prefixes",
        "output_prefixes",
        "webhook_networks",
        mode="before",
    )
    @classmethod
    def _split_commas(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("blob_url", "models_url")
    @classmethod
    def _only_folders(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme != "file" or parts.netloc or not parts.path:
            raise ValueError("must be file:///folder")
        return value

    @field_validator("database_url")
    @classmethod
    def _known_database(cls, value: str) -> str:
        if not value.startswith(_DATABASES):
            raise ValueError("must be sqlite:///path or postgresql+psycopg://user@host/database")
        return value

    @field_validator("broker_url")
    @classmethod
    def _known_broker(cls, value: str) -> str:
        if value != "none" and not value.startswith(_BROKERS):
            raise ValueError("must be none, redis://host:port/0, rediss://… or redis+socket:///path")
        return value

    @model_validator(mode="after")
    def _ttl_spans_heartbeats(self) -> Self:
        if self.lease_ttl_s < 3 * self.heartbeat_s:
            raise ValueError(
                f"{_PREFIX}LEASE_TTL_S={self.lease_ttl_s:g} must be at least three times "
                f"{_PREFIX}HEARTBEAT_S={self.heartbeat_s:g}: one late heartbeat must not be a death"
            )
        return self


def read_settings() -> Settings:
    """Returns the settings of this process.

    Raises:
        SettingsError: If any is wrong; the message has a line for each, with the variable's name.
    """
    try:
        return Settings()
    except ValidationError as error:
        lines = []
        for wrong in error.errors(include_url=False, include_input=False):
            variable = f"{_PREFIX}{str(wrong['loc'][0]).upper()}: " if wrong["loc"] else ""
            # Not the value itself: a URL may hold a password.
            lines.append(f"{variable}{wrong['msg'].removeprefix('Value error, ')}")
        raise SettingsError("\n".join(lines)) from None


def check_host(host: str, *, named: str = f"{_PREFIX}API_HOST") -> None:
    """Lets loopback pass.

    Args:
        host: Where to listen.
        named: What the user knows the setting by.

    Raises:
        UnsafeHostError: If others could reach it.
    """
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise UnsafeHostError(
            f"{named} {host}: this version has no keys, so it listens on loopback only (127.0.0.1, ::1 or "
            "localhost); put a proxy that authenticates in front of it"
        )


def folder_of(url: str) -> Path:
    """Returns the folder that a `file:///…` URL names.

    Raises:
        ValueError: If it is another kind of URL.
    """
    parts = urlsplit(url)
    if parts.scheme != "file":
        raise ValueError(f"not a file URL: {url}")
    return Path(unquote(parts.path))
