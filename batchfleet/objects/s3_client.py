"""Makes boto3 clients for S3, and says what their errors mean. boto3 is imported where a client is made.

Every request has a bounded number of attempts (boto3's `standard` mode: backoff with jitter, and a budget that stops
retries during an outage) and every socket a timeout. Credentials and region are found as boto3 finds them.
"""

import base64
import functools
import os
import zlib
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol, TypeAlias

S3Client: TypeAlias = Any
"""boto3 makes its clients' methods at run time: there is no type to name."""

_DEFAULT_REGION: Final = "us-east-1"
_POOL: Final = 32
"""Connections kept: at least as many as threads use one client."""
_READ_TRIES: Final = 3
"""boto3 does not retry once a body has begun to arrive."""
_CHECKSUM: Final = "crc32"
"""User metadata with the checksum of what was written: it is verified on reading, also where the server keeps none."""


@dataclass(frozen=True, slots=True)
class S3Terms:
    """How long S3 is waited for.

    Attributes:
        connect_s: Seconds for a connection.
        read_s: Seconds without a byte of an answer.
        attempts: Requests in all for one call, retries included.
    """

    connect_s: float = 3.0
    read_s: float = 10.0
    attempts: int = 3


class S3Settings(Protocol):
    """The settings that a client is made from."""

    @property
    def s3_endpoint_url(self) -> str | None:
        """An S3 server other than AWS."""
        ...

    @property
    def s3_path_style(self) -> bool | None:
        """Whether buckets are named in the path; None: with an endpoint of one's own."""
        ...


class Fault(Enum):
    """What an error of a request means."""

    NO_OBJECT = "no such object"
    NO_BUCKET = "no such bucket"
    FORBIDDEN = "forbidden"
    """The bucket's owner does not let us; wrong or expired credentials are our own trouble, and `AWAY`."""
    REFUSED = "refused"
    """This very request is refused, and would be again."""
    INVALID = "invalid"
    """The server takes the request for wrong, we do not know why: the caller's name of an object, most likely."""
    AWAY = "away"
    """Cannot be reached, is busy, fails, or does not know us: may be mended without the caller."""


_FAULTS: Final = {
    "NoSuchKey": Fault.NO_OBJECT,
    "NotFound": Fault.NO_OBJECT,
    "404": Fault.NO_OBJECT,
    "NoSuchBucket": Fault.NO_BUCKET,
    "AccessDenied": Fault.FORBIDDEN,
    "AllAccessDisabled": Fault.FORBIDDEN,
    "InvalidObjectState": Fault.FORBIDDEN,
    "403": Fault.FORBIDDEN,
    "EntityTooLarge": Fault.REFUSED,
    "InvalidBucketName": Fault.REFUSED,
    "KeyTooLongError": Fault.REFUSED,
    "InvalidURI": Fault.REFUSED,
    "InvalidObjectName": Fault.REFUSED,
    "MethodNotAllowed": Fault.REFUSED,
}
_OURS: Final = frozenset(
    {
        "AuthorizationHeaderMalformed",
        "AuthorizationQueryParametersError",
        "BadDigest",
        "ExpiredToken",
        "IllegalLocationConstraintException",
        "IncompleteBody",
        "InvalidToken",
        "OperationAborted",
        "PriorRequestNotComplete",
        "RequestLimitExceeded",
        "RequestTimeout",
        "RequestTimeTooSkewed",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TokenRefreshRequired",
        "XAmzContentSHA256Mismatch",
    }
)
"""Answers of the 400 class that are no word on the object: our credentials, our clock, our haste, or the line."""
_INVALID_STATUS: Final = frozenset({400, 405, 410, 413, 414, 416, 422})


def make_s3_client(settings: S3Settings, terms: S3Terms | None = None) -> S3Client:
    """Returns a client; it may be used from any thread, connects when it is used, and is closed by its owner.

    Raises:
        ValueError: If the endpoint is no URL.
    """
    import boto3.session  # noqa: PLC0415 - 0.3 s and 30 MB, which only users of S3 pay
    import botocore.session  # noqa: PLC0415
    from botocore.config import Config  # noqa: PLC0415

    terms = S3Terms() if terms is None else terms
    endpoint = settings.s3_endpoint_url
    path_style = endpoint is not None if settings.s3_path_style is None else settings.s3_path_style
    core = botocore.session.get_session()
    core.register_component("data_loader", _service_data())
    session = boto3.session.Session(botocore_session=core)
    return session.client(
        "s3",
        endpoint_url=endpoint,
        # boto3 itself reads AWS_DEFAULT_REGION and profiles, but not the variable that other tools of AWS read.
        region_name=session.region_name or os.environ.get("AWS_REGION") or _DEFAULT_REGION,
        config=Config(
            connect_timeout=terms.connect_s,
            read_timeout=terms.read_s,
            retries={"mode": "standard", "total_max_attempts": terms.attempts},
            max_pool_connections=_POOL,
            tcp_keepalive=True,
            signature_version="s3v4",
            s3={"addressing_style": "path" if path_style else "auto"},
            # boto3's own default puts checksums into trailers, which servers other than AWS may not understand:
            # `write_object` sends one as a plain header instead, which those that do not know it ignore.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_supported",
            user_agent_extra="batchfleet",
        ),
    )


@functools.cache
def _service_data() -> Any:
    """Returns boto3's loader of what it knows of S3: each session of its own would read it anew, in 0.1 s of CPU."""
    import botocore.session  # noqa: PLC0415

    return botocore.session.get_session().get_component("data_loader")


def s3_errors() -> tuple[type[Exception], ...]:
    """Returns the classes of what requests raise: for `except`, where boto3 is loaded already."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

    return (BotoCoreError, ClientError)


def fault_of(error: Exception) -> Fault:
    """Returns what an error of `s3_errors` means."""
    from botocore.exceptions import ParamValidationError  # noqa: PLC0415

    if isinstance(error, ParamValidationError):  # found before anything was sent
        return Fault.INVALID
    response = getattr(error, "response", None)
    if not isinstance(response, dict):
        return Fault.AWAY
    code = str(response.get("Error", {}).get("Code", ""))
    if code in _FAULTS:
        return _FAULTS[code]
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return Fault.INVALID if status in _INVALID_STATUS and code not in _OURS else Fault.AWAY


def write_object(client: S3Client, bucket: str, key: str, data: bytes, content_type: str) -> None:
    """Writes an object whole, with a checksum that the server verifies if it can, and that readers verify.

    Raises:
        BotoCoreError, ClientError: See `s3_errors`.
    """
    checksum = base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()
    client.put_object(
        Bucket=bucket,
        Key=key,
        Body=data,
        ContentType=content_type,
        ChecksumAlgorithm="CRC32",
        ChecksumCRC32=checksum,
        Metadata={_CHECKSUM: checksum},
    )


class ObjectOverLimitError(Exception):
    """The object is larger than what was allowed; it was not read.

    Attributes:
        size: Its size in bytes.
    """

    def __init__(self, size: int) -> None:
        super().__init__(f"{size} bytes")
        self.size = size


class CorruptObjectError(Exception):
    """What arrived is not what was written."""


def read_object(client: S3Client, bucket: str, key: str, *, limit: int | None = None) -> bytes:
    """Returns an object; a body that breaks off is asked for again, a few times.

    One request tells the size and, if that is within the limit, brings the bytes: a `HEAD` before it would cost a
    round trip, and says less of errors.

    Raises:
        ObjectOverLimitError: If it has more than `limit` bytes.
        CorruptObjectError: If it goes on arriving with another checksum than it was written with.
        BotoCoreError, ClientError: See `s3_errors`.
    """
    broken: tuple[type[Exception], ...] = (*s3_errors(), CorruptObjectError)
    left = _READ_TRIES
    while True:
        left -= 1
        answer = client.get_object(Bucket=bucket, Key=key)  # what this raises was retried already
        try:
            return _read_body(answer, limit)
        except broken:
            if not left:
                raise


def _read_body(answer: Any, limit: int | None) -> bytes:
    body = answer["Body"]
    try:
        size = int(answer["ContentLength"])
        if limit is not None and size > limit:
            raise ObjectOverLimitError(size)
        data: bytes = body.read()
    finally:
        body.close()
    written = answer.get("Metadata", {}).get(_CHECKSUM)
    if len(data) != size:
        raise CorruptObjectError(f"{len(data)} bytes of {size} arrived")
    if written is not None and written != base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode():
        raise CorruptObjectError("the checksum is not that of what was written")
    return data
