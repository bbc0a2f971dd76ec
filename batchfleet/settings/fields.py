"""All settings: their types, defaults and bounds. Each is documented in `docs/reference/settings.md`."""

import os
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, ValidationInfo, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SecretsSettingsSource,
    SettingsConfigDict,
)

from batchfleet.settings.broker_url import check_broker_url
from batchfleet.settings.database_url import check_database_url, with_password
from batchfleet.settings.errors import PREFIX
from batchfleet.settings.secret_files import secrets_folder
from batchfleet.settings.urls import check_folder, check_folder_or_bucket, is_plain_server
from batchfleet.settings.values import check_devices, check_networks, check_sealing_keys

Seconds = Annotated[float, Field(gt=0, le=30 * 24 * 3600, allow_inf_nan=False)]
Count = Annotated[int, Field(gt=0, le=2**40)]
Retention = Annotated[float, Field(ge=60, le=10 * 366 * 24 * 3600, allow_inf_nan=False)]


class Settings(BaseSettings):
    """All settings, with the defaults of a single machine."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic's signature
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Says what comes first: the code, the environment, the files of the secrets folder."""
        return init_settings, env_settings, SecretsSettingsSource(settings_cls, secrets_folder(os.environ))

    # -- where things are ---------------------------------------------------------------------------------
    secrets_dir: Path | None = None
    """Folder with a file per secret setting, such as `batchfleet_database_password`; default: `/run/secrets`."""
    database_password: SecretStr | None = None
    """Put into `database_url`, so that only this part of it need be secret."""
    database_url: Annotated[str, Field(validate_default=True)] = "sqlite:///batchfleet.db"
    """SQLAlchemy URL of the truth: `sqlite:///path` or `postgresql+psycopg://…`."""
    broker_url: str = "none"
    """`redis://…`, `redis+socket:///path`, or `none` (workers then find work in the database)."""
    blob_url: str = "file:///var/lib/batchfleet/blobs"
    """Where large results go: `file:///folder` or `s3://bucket/prefix`."""
    models_url: str = "file:///var/lib/batchfleet/models"
    """The model repository: `file:///folder`."""
    s3_endpoint_url: str | None = None
    """An S3 server other than AWS: `http://host:port`. Credentials and region are found as boto3 finds them."""
    s3_public_url: str | None = None
    """Where callers reach that server, for links; default: the endpoint. `none`: not at all, the API reads for them."""
    s3_path_style: bool | None = None
    """Whether buckets are named in the path; default: yes with an endpoint of one's own, else no."""
    secret_key: SecretStr | None = None
    """Seals what must be kept readable in the database (webhook secrets); several, comma-separated: the first seals."""
    state_dir: Path = Path("/var/lib/batchfleet/state")
    """This machine's own files: journals, measurements."""
    metrics_dir: Path | None = None
    """Folder in which the processes of one machine share their metrics; None keeps them apart."""
    metrics_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Port on which a worker or a scheduler shows its metrics itself; None: an API process beside it does."""
    metrics_host: str = "127.0.0.1"
    """Where that port is open. It asks for no key."""
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
    """Threads of one forward pass; where it is not set, what `batchfleet worker --tune` found best holds."""
    worker_variant: str = "auto"
    """Variant of the models to run (`int8`, `bf16`, …); `auto` takes the fastest measured on this machine."""
    worker_providers: Annotated[tuple[str, ...], NoDecode] = ()
    """Execution providers that may be used (`cpu`, `openvino`, `cuda`, …), comma-separated; empty for all."""
    worker_devices: str = "auto"
    """GPUs that `batchfleet up` gives its workers, one each in turn: `auto`, `none`, or names, comma-separated."""
    window_items: Annotated[int, Field(ge=1, le=65536)] = 1024
    """Items that a worker holds claimed at most."""
    window_s: Seconds = 2.0
    """Seconds of work that a worker holds claimed at most."""
    canary_share: Annotated[float, Field(ge=0, le=1)] = 0.001
    """Share of the items that are run again alone to see whether company matters; 0 for none."""
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
    """Webhooks a scheduler sends at once, of one tenant half of them at most; half as many outputs beside them."""
    result_retention_s: Retention = 7 * 24 * 3600.0
    """How long results are kept after their job ended; asked for later, they are gone (410)."""
    job_retention_s: Retention = 30 * 24 * 3600.0
    """How long jobs and deliveries are remembered after they ended."""
    orphan_grace_s: Retention = 24 * 3600.0
    """Age over which a blob that no job names is removed; above the longest run timeout by a lease."""
    webhook_timeout_s: Annotated[float, Field(gt=0, le=60)] = 15.0
    """How long one attempt of a webhook may take, from resolving the name to the answer's head."""
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

    @field_validator("webhook_networks")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return check_networks(value)

    @field_validator("worker_devices")
    @classmethod
    def _devices(cls, value: str) -> str:
        return check_devices(value)

    @field_validator("secret_key")
    @classmethod
    def _sealing_keys(cls, value: SecretStr | None) -> SecretStr | None:
        return None if value is None or not value.get_secret_value().strip() else check_sealing_keys(value)

    @field_validator("models_url")
    @classmethod
    def _only_folders(cls, value: str) -> str:
        return check_folder(value)

    @field_validator("blob_url")
    @classmethod
    def _folder_or_bucket(cls, value: str) -> str:
        return check_folder_or_bucket(value)

    @field_validator("otlp_endpoint")
    @classmethod
    def _collector(cls, value: str | None) -> str | None:
        if not value:
            return None
        if not is_plain_server(value):
            raise ValueError("must be http://host:4318 or https://host, without a user (OTEL_EXPORTER_OTLP_HEADERS)")
        return value

    @field_validator("s3_endpoint_url", "s3_public_url")
    @classmethod
    def _plain_endpoint(cls, value: str | None, info: ValidationInfo) -> str | None:
        if not value:
            return None
        public = info.field_name == "s3_public_url"
        if public and value == "none":
            return value
        if not is_plain_server(value):
            or_none = ", or none" if public else ""
            raise ValueError(f"must be http://host:port or https://host, without a user or password{or_none}")
        return value.rstrip("/")

    @field_validator("database_url")
    @classmethod
    def _usable_database(cls, value: str, info: ValidationInfo) -> str:
        checked = check_database_url(value)
        password = info.data.get("database_password")
        return checked if password is None else with_password(checked, password.get_secret_value())

    @field_validator("broker_url")
    @classmethod
    def _usable_broker(cls, value: str) -> str:
        return check_broker_url(value)

    @model_validator(mode="after")
    def _ttl_spans_heartbeats(self) -> Self:
        if self.lease_ttl_s < 3 * self.heartbeat_s:
            raise ValueError(
                f"{PREFIX}LEASE_TTL_S={self.lease_ttl_s:g} must be at least three times "
                f"{PREFIX}HEARTBEAT_S={self.heartbeat_s:g}: one late heartbeat must not be a death"
            )
        return self
