"""Makes the parts of one scheduler's control plane from the settings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from batchfleet.broker.port import Ring
from batchfleet.jobs.store import JobStore
from batchfleet.objects.connect import connect_objects
from batchfleet.objects.port import ObjectStore
from batchfleet.outbox.delivery import DeliveryKind
from batchfleet.outbox.guard import parse_networks
from batchfleet.outbox.http_sender import HttpSender
from batchfleet.outbox.port import OutboxStore
from batchfleet.outbox.schedule import DELAYS_S
from batchfleet.outbox.sealing import sealer_of
from batchfleet.outbox.sql import SqlOutbox
from batchfleet.profiles.port import ProfileStore
from batchfleet.profiles.sql import SqlProfiles
from batchfleet.results.blobs import BlobStore
from batchfleet.results.connect import connect_blobs
from batchfleet.settings import Settings
from batchfleet.telemetry import Metrics
from batchfleet.tracing import Tracer
from scheduler.control import Control, places_of
from scheduler.deliver import Deliverer
from scheduler.doorbell import UNANSWERED_S
from scheduler.payers import OutputPayer, WebhookPayer
from scheduler.retention import Retention
from scheduler.work import UnderWay

WEBHOOK_LEASE_GRACE_S: Final = 30.0
"""What an attempt of a webhook may take beyond its own deadline: our database, twice."""
OUTPUT_LEASE_S: Final = 300.0
"""What an attempt of an output may take: reading a large result and writing it, with the object store's retries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlParts:
    """What the control plane works with, to be closed after it."""

    control: Control
    outbox: OutboxStore
    blobs: BlobStore
    objects: ObjectStore
    profiles: ProfileStore

    def close(self) -> None:
        """Gives up all connections."""
        for part in (self.outbox, self.blobs, self.objects, self.profiles):
            part.close()


def build_control(
    settings: Settings,
    jobs: JobStore,
    ring: Ring,
    metrics: Metrics,
    *,
    tracer: Tracer | None = None,
    webhook_lease_s: float | None = None,
    delays_s: Sequence[float] = DELAYS_S,
    resend_s: float = UNANSWERED_S,
) -> ControlParts:
    """Returns the control plane; nothing is connected before it is used.

    Args:
        settings: All settings.
        jobs: The job store.
        ring: Tells of ended jobs.
        metrics: Counts.
        tracer: Takes the spans of webhooks; None where nobody asked for traces.
        webhook_lease_s: How long an attempt of a webhook may take before it counts as lost; default: by its timeout.
        delays_s: The schedule of deliveries.
        resend_s: After how long a delivery that nobody has begun is rung for again.

    Raises:
        BlobsUnavailableError: If the folder for blobs cannot be used.
    """
    outbox = SqlOutbox(settings.database_url, sealer=sealer_of(settings))
    blobs = connect_blobs(settings)
    objects = connect_objects(settings)
    networks = parse_networks(settings.webhook_networks)
    sender = HttpSender(settings.webhook_timeout_s, networks)
    under_way = UnderWay()

    def stopping() -> bool:
        return under_way.closed

    lease_s = webhook_lease_s or settings.webhook_timeout_s + WEBHOOK_LEASE_GRACE_S
    deliverer = Deliverer(
        outbox,
        {
            DeliveryKind.WEBHOOK: WebhookPayer(jobs, outbox, sender, tracer=tracer),
            DeliveryKind.OUTPUT: OutputPayer(jobs, blobs, objects),
        },
        metrics,
        lease_s={DeliveryKind.WEBHOOK: lease_s, DeliveryKind.OUTPUT: OUTPUT_LEASE_S},
        places=places_of(settings),
        delays_s=delays_s,
        stopping=stopping,
    )

    profiles = SqlProfiles(settings.database_url)
    retention = Retention(jobs, outbox, blobs, profiles, metrics, settings, stopping)
    control = Control(settings, outbox, deliverer, retention, ring, under_way=under_way, resend_s=resend_s)
    return ControlParts(control=control, outbox=outbox, blobs=blobs, objects=objects, profiles=profiles)
