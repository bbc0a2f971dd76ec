"""celery-batches: Celery's messages, flushed to the pool in batches; results in Redis, one a text."""

from celery_batches import Batches, SimpleRequest

from benchmarks.peers.servers.celery_app import SETUP, app, embedder

__all__ = ["app", "embed"]


@app.task(  # type: ignore[untyped-decorator]  # Celery has no types
    name="embed", base=Batches, flush_every=SETUP.batch, flush_interval=max(0.001, SETUP.wait_ms / 1e3)
)
def embed(requests: list[SimpleRequest]) -> None:
    """Embeds the texts of a batch of messages."""
    answers = embedder().answers([request.args[0] for request in requests])
    for request, answer in zip(requests, answers, strict=True):
        app.backend.mark_as_done(request.id, answer, request=request)
