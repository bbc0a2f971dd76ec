"""The links of a body: where its inputs come from, and who is owed what at its end.

Nothing is fetched or looked for here: a location is allowed by its prefix alone, so that a refusal tells nothing of
what lies there.
"""

from collections.abc import Sequence

from api.problems import UriForbiddenError
from api.schemas import JobBody
from batchfleet.access.tenants import Tenant
from batchfleet.errors import InvalidRequestError, UnsupportedFieldError
from batchfleet.jobs.job import NO_LINKS, JobLinks
from batchfleet.objects.uri import is_under, parse_uri
from batchfleet.outbox.guard import Network, check_callback_url


def has_links(body: JobBody) -> bool:
    """Returns whether a body states any: most state none, and need no tenant."""
    return body.input_uri is not None or body.output_uri is not None or body.callback_url is not None


def make_links(body: JobBody, tenant: Tenant, *, callbacks: bool, networks: Sequence[Network] = ()) -> JobLinks:
    """Returns the links that a body asks for.

    Args:
        body: Well formed already.
        tenant: Whom the job belongs to, and where its objects may lie.
        callbacks: Whether jobs may have a `callback_url`.
        networks: What callbacks may reach though it is not public.

    Raises:
        InvalidRequestError: If one is not of the form asked for; `field` names it.
        UriForbiddenError: If an object lies where the tenant may not.
        UnsupportedFieldError: If callbacks are switched off.
    """
    if not has_links(body):
        return NO_LINKS
    return JobLinks(
        input_uri=_object(body.input_uri, "input_uri", tenant.input_prefixes, "read from"),
        output_uri=_object(body.output_uri, "output_uri", tenant.output_prefixes, "write to"),
        callback_url=_callback(body.callback_url, networks, allowed=callbacks),
    )


def _object(text: str | None, field: str, prefixes: Sequence[str], verb: str) -> str | None:
    if text is None:
        return None
    if text.startswith("file:"):
        raise InvalidRequestError("must be s3://bucket/key: files of this machine are not read", field=field)
    uri = parse_uri(text, field=field)
    if not is_under(uri, prefixes):
        raise UriForbiddenError(f"lies under no prefix that this tenant may {verb}", field=field)
    return str(uri)


def _callback(text: str | None, networks: Sequence[Network], *, allowed: bool) -> str | None:
    if text is None:
        return None
    if not allowed:
        raise UnsupportedFieldError("callbacks are switched off here", field="callback_url")
    return check_callback_url(text, networks, field="callback_url")
