"""What an API process is made of, handed in from outside; `build_parts` makes the real ones from the settings."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from api.catalog import Repository
from batchfleet.access.sql import SqlAccess
from batchfleet.access.store import AccessStore
from batchfleet.access.tenants import DEFAULT_TENANT, Tenant
from batchfleet.broker.announcer import Announcer
from batchfleet.broker.connect import connect_broker, connect_ring, has_broker
from batchfleet.broker.hint import Flow
from batchfleet.broker.port import HintBroker, Ring
from batchfleet.errors import InvalidRequestError
from batchfleet.inference.intake import Intake, intake_for
from batchfleet.jobs.job import LANES, Announcement, Lane
from batchfleet.jobs.sql.store import SqlStore
from batchfleet.jobs.store import JobStore
from batchfleet.models.repository import ModelRepository
from batchfleet.objects.uri import parse_prefix
from batchfleet.outbox.port import OutboxStore
from batchfleet.outbox.sealing import sealer_of
from batchfleet.outbox.sql import SqlOutbox
from batchfleet.profiles.backlog import Backlog
from batchfleet.profiles.port import ProfileStore
from batchfleet.profiles.sql import SqlProfiles
from batchfleet.results.blobs import BlobStore
from batchfleet.results.connect import connect_blobs
from batchfleet.settings import Settings, SettingsError, folder_of
from batchfleet.telemetry import Metrics
from batchfleet.tracing import Tracer

_PROBED = Flow("probe", Lane.ONLINE)


class AnnouncesJobs(Protocol):
    """What the submitter tells of committed jobs; `batchfleet.broker.announcer.Announcer` is one."""

    def announce(self, jobs: Sequence[Announcement]) -> None:
        """Takes jobs to be announced; never blocks, never raises."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything that the HTTP front works with.

    Attributes:
        announcer: None where there is no broker.
        probe: A broker adapter of its own, asked for its depth when readiness is; None where there is no broker.
        intake_for: Finds the edge half of a task.
        tracer: Records requests that submit jobs; None where nobody asked for traces.
    """

    settings: Settings
    metrics: Metrics
    store: JobStore
    access: AccessStore
    outbox: OutboxStore
    profiles: ProfileStore
    blobs: BlobStore
    repository: Repository
    ring: Ring
    announcer: AnnouncesJobs | None = None
    probe: HintBroker | None = None
    intake_for: Callable[[str], Intake[Hashable]] = intake_for
    tracer: Tracer | None = None

    def probe_broker(self) -> None:
        """Returns if the broker answers, or if there is none.

        Raises:
            BrokerUnavailableError: If it does not.
        """
        if self.probe is not None:
            self.probe.depth(_PROBED)


def build_parts(settings: Settings, metrics: Metrics, tracer: Tracer | None = None) -> Parts:
    """Returns the real parts; nothing is connected before it is used.

    Raises:
        ValueError: If a URL of the settings names something unknown.
        SettingsError: If a prefix of the settings is none.
    """
    default_tenant(settings)  # read again by `Services`; what is wrong with it must be told before anything starts
    store = SqlStore(settings.database_url)
    profiles = SqlProfiles(settings.database_url)
    metrics.watch_queues(store.queue_depths, Backlog(profiles.rates, LANES))
    outbox = SqlOutbox(settings.database_url, sealer=sealer_of(settings))
    metrics.watch_outbox(outbox.depths)
    announcer, probe = None, None
    if has_broker(settings.broker_url):
        announcer = Announcer(connect_broker(settings.broker_url, metrics=metrics), metrics=metrics)
        announcer.start()
        probe = connect_broker(settings.broker_url, metrics=metrics)
    return Parts(
        settings=settings,
        metrics=metrics,
        store=store,
        access=SqlAccess(settings.database_url),
        outbox=outbox,
        profiles=profiles,
        blobs=connect_blobs(settings),
        repository=ModelRepository(folder_of(settings.models_url)),
        ring=connect_ring(settings.broker_url, metrics=metrics),
        announcer=announcer,
        probe=probe,
        tracer=tracer,
    )


def default_tenant(settings: Settings) -> Tenant:
    """Returns what the settings allow the tenant `default`.

    Raises:
        SettingsError: If a prefix of theirs is none.
    """
    return Tenant(
        name=DEFAULT_TENANT,
        input_prefixes=_prefixes(settings.input_prefixes, "INPUT_PREFIXES"),
        output_prefixes=_prefixes(settings.output_prefixes, "OUTPUT_PREFIXES"),
    )


def _prefixes(stated: Sequence[str], variable: str) -> tuple[str, ...]:
    parsed = []
    for place, text in enumerate(stated, start=1):
        try:
            parsed.append(parse_prefix(text))
        except InvalidRequestError as exc:
            raise SettingsError(f"BATCHFLEET_{variable}: prefix {place} of {len(stated)} {exc}") from exc
    return tuple(parsed)


def close_parts(parts: Parts) -> None:
    """Closes what `build_parts` opened, in the order in which jobs pass through it."""
    if isinstance(parts.announcer, Announcer):
        parts.announcer.close()
    if parts.probe is not None:
        parts.probe.close()
    parts.ring.close()
    parts.store.close()
    parts.access.close()
    parts.outbox.close()
    parts.profiles.close()
    parts.blobs.close()
    if parts.tracer is not None:
        parts.tracer.close()
