"""What a shell completes: names of models, ids of jobs. Quick, silent, and never in the way."""

from collections.abc import Callable
from contextlib import suppress

import click
from click.shell_completion import CompletionItem

from batchfleet.client import Client, RetryPolicy

_PATIENCE_S = 1.0
_JOBS = 50
_ONCE = RetryPolicy(retries=0, total_s=_PATIENCE_S)


def model_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Returns the models that the fleet serves."""
    return _asked(ctx, incomplete, lambda client: [(model.id, model.task) for model in client.models()])


def job_ids(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Returns the latest jobs."""
    return _asked(
        ctx,
        incomplete,
        lambda client: [(job.id, f"{job.status} {job.model}") for job in client.list_jobs(limit=_JOBS).jobs],
    )


def _asked(ctx: click.Context, incomplete: str, ask: Callable[[Client], list[tuple[str, str]]]) -> list[CompletionItem]:
    # Whatever is wrong, a person who presses the tab key is no help with it.
    with suppress(Exception):
        url, key = ctx.params.get("url"), ctx.params.get("api_key")
        with Client(url, key, timeout_s=_PATIENCE_S, policy=_ONCE) as client:
            return [CompletionItem(name, help=about) for name, about in ask(client) if name.startswith(incomplete)]
    return []
