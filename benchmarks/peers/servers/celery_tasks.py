"""Celery: one task a text, results in Redis."""

from typing import Any

from benchmarks.peers.servers.celery_app import app, embedder

__all__ = ["app", "embed"]


@app.task(name="embed")  # type: ignore[untyped-decorator]  # Celery has no types
def embed(text: str) -> Any:
    """Embeds one text."""
    return embedder().answers([text])[0]
