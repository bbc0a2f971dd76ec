"""The working parts of one API process, started and closed with its event loop."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from api.auth import Authenticator, Caller
from api.blobreads import BlobReads
from api.cached import CachedRead
from api.catalog import Catalog
from api.gate import Gate
from api.known import KnownRows
from api.lookups import Lookups
from api.newjobs import JobMaker
from api.parts import Parts, default_tenant
from api.submitter import Submitter
from api.views import serving
from api.waiters import Waiters
from batchfleet.access.tenants import DEFAULT_TENANT, Tenant
from batchfleet.errors import OverloadedError, UnavailableError
from batchfleet.jobs.job import Announcement, JobId, JobRecord, WorkerLease
from batchfleet.settings import keys_required

WORKERS_FRESH_S = 2.0
BROKER_FRESH_S = 2.0
LOOKUP_WITHOUT_BROKER_S = 0.25
"""With no broker there is no ring: how often all waiting ids are looked up then."""


class Services:
    """Everything that the routes share.

    Args:
        parts: What the process is made of; they are not closed here.
    """

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.settings = parts.settings
        self.auth = Authenticator(
            parts.access,
            required=keys_required(parts.settings.api_host, parts.settings.require_keys),
            fresh_s=parts.settings.key_cache_s,
        )
        self._tenants: KnownRows[Tenant] = KnownRows(
            lambda name: asyncio.to_thread(parts.access.tenant, name), fresh_s=parts.settings.key_cache_s
        )
        self._defaults = default_tenant(parts.settings)
        self.lookups = Lookups(parts.store)
        self.blobs = BlobReads()
        self.submitter = Submitter(parts.store, self._announce)
        self.catalog = Catalog(parts.repository, parts.intake_for)
        self.maker = JobMaker(parts.settings, announced=parts.announcer is not None)
        with_broker = parts.announcer is not None
        self.waiters = Waiters(
            self.lookups.ended,
            lookup_s=parts.settings.ring_lookup_s if with_broker else LOOKUP_WITHOUT_BROKER_S,
            read=self.lookups.read_now,
        )
        self.gate = Gate(lambda: self.lookups.call(parts.store.queue_depths), parts.settings.max_queued_jobs)
        self.workers: CachedRead[list[WorkerLease]] = CachedRead(
            lambda: self.lookups.call(parts.store.workers), fresh_s=WORKERS_FRESH_S
        )
        self.broker: CachedRead[bool] = CachedRead(self._probe_broker, fresh_s=BROKER_FRESH_S)

    async def start(self) -> None:
        """Starts the threads and listens to the ring."""
        self.auth.start()
        self.lookups.start()
        self.submitter.start()
        self.waiters.start()
        self.parts.ring.listen(self.waiters.ring)

    async def close(self) -> None:
        """Answers everybody who waits, writes what is under way, and ends the threads; idempotent."""
        self.waiters.close()
        await self.submitter.close()
        await self.lookups.close()
        await self.auth.close()
        self.blobs.close()

    async def tenant(self, caller: Caller) -> Tenant:
        """Returns where the caller's objects may lie.

        Raises:
            UnavailableError: If the database cannot be asked, and the tenant was not asked for before.
        """
        known = await self._tenants.get(caller.tenant) or Tenant(name=caller.tenant)
        return self._with_defaults(known) if caller.tenant == DEFAULT_TENANT else known

    async def notice_for(self, job: JobRecord) -> str | None:
        """Returns what the owner of a job should know: nobody is there to run it."""
        if job.state.terminal:
            return None
        live = await self.live_workers(job.model)
        return f"no live worker serves model {job.model}" if live == 0 else None

    async def live_workers(self, model: str) -> int | None:
        """Returns how many live workers take jobs of the model; None where the database cannot tell."""
        try:
            workers = await self.workers.get()
        except (UnavailableError, OverloadedError):
            return None
        return serving(workers, model, self.settings.lease_ttl_s)

    def job_ended(self, job_id: JobId) -> None:
        """Rings for a job that ended here: our own waiters at once, the others by the ring, off the loop."""
        self.waiters.wake((job_id,))
        asyncio.get_running_loop().run_in_executor(None, self.parts.ring.ring, (job_id,))

    def _with_defaults(self, tenant: Tenant) -> Tenant:
        """Returns the tenant with the settings' prefixes where it has none of its own."""
        return replace(
            tenant,
            input_prefixes=tenant.input_prefixes or self._defaults.input_prefixes,
            output_prefixes=tenant.output_prefixes or self._defaults.output_prefixes,
        )

    def _announce(self, jobs: Sequence[Announcement]) -> None:
        if self.parts.announcer is not None:
            self.parts.announcer.announce(jobs)

    async def _probe_broker(self) -> bool:
        await asyncio.to_thread(self.parts.probe_broker)
        return True
