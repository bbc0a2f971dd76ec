"""The blob store in S3, or in any server that speaks its protocol."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from batchfleet.objects.s3_client import (
    CorruptObjectError,
    Fault,
    S3Client,
    S3Settings,
    S3Terms,
    fault_of,
    make_s3_client,
    read_object,
    s3_errors,
    write_object,
)
from batchfleet.results.blobs import (
    BlobData,
    BlobEntry,
    BlobNotFoundError,
    BlobRefusedError,
    BlobsUnavailableError,
    check_key,
)

_CONTENT_TYPE: Final = "application/octet-stream"
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True)
class Links:
    """How links are made.

    Attributes:
        valid_s: How long one works, in seconds.
        url: Where callers reach the server; None for where we do. A signature is for one host.
    """

    valid_s: int = 900
    url: str | None = None


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """An `S3Settings`."""

    s3_endpoint_url: str | None
    s3_path_style: bool | None


class S3Blobs:
    """One object a blob. S3 shows an object whole or not at all, and has stored it when it answers.

    Args:
        bucket: Name of the bucket.
        prefix: Where in the bucket, without a slash at either end; empty for its top.
        settings: Where the server is.
        links: How links are made; None for no links at all, where callers cannot reach the server.
        terms: How long the server is waited for.
        page: Blobs that one answer of a listing holds, at most 1,000.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str,
        settings: S3Settings,
        *,
        links: Links | None = None,
        terms: S3Terms | None = None,
        page: int = 1000,
    ) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._links = links
        self._page = page
        self._client: S3Client = make_s3_client(settings, terms)
        self._signer = self._client
        if links is not None and links.url is not None:
            self._signer = make_s3_client(_Endpoint(links.url, settings.s3_path_style), terms)
        self._errors = s3_errors()

    def put(self, key: str, data: BlobData) -> None:
        """Stores a blob; when this returns, S3 has it, and has verified its checksum if it can."""
        name = self._name(key)
        try:
            write_object(self._client, self._bucket, name, bytes(data), _CONTENT_TYPE)
        except self._errors as error:
            if fault_of(error) is Fault.REFUSED:
                raise BlobRefusedError(f"{key} is refused: {error}") from error
            self._away("write", key, error)

    def get(self, key: str) -> bytes:
        """Returns a blob."""
        name = self._name(key)
        try:
            return read_object(self._client, self._bucket, name)
        except CorruptObjectError as error:
            raise BlobsUnavailableError(f"cannot read {key}: {error}") from error
        except self._errors as error:
            if fault_of(error) is Fault.NO_OBJECT:
                raise BlobNotFoundError(f"no blob {key}") from error
            self._away("read", key, error)

    def exists(self, key: str) -> bool:
        """Returns whether there is a blob of that key."""
        return self._look(key) is not None

    def delete(self, key: str) -> None:
        """Removes a blob; S3 does not mind if there is none."""
        name = self._name(key)
        try:
            self._client.delete_object(Bucket=self._bucket, Key=name)
        except self._errors as error:
            if fault_of(error) is not Fault.NO_OBJECT:
                self._away("delete", key, error)

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[BlobEntry]:
        """Yields blobs in order, a page of S3's at a time."""
        if prefix:
            check_key(prefix)
            if prefix > after and (itself := self._look(prefix)) is not None:
                yield itself
        under = f"{self._prefix}{prefix}/" if prefix else self._prefix
        asked: dict[str, Any] = {"Bucket": self._bucket, "Prefix": under, "PaginationConfig": {"PageSize": self._page}}
        if after:
            asked["StartAfter"] = self._prefix + after
        try:
            for page in self._client.get_paginator("list_objects_v2").paginate(**asked):
                for entry in page.get("Contents", ()):
                    key = str(entry["Key"])[len(self._prefix) :]
                    if _is_key(key):
                        yield BlobEntry(key, int(entry["Size"]), entry["LastModified"].timestamp())
        except self._errors as error:
            self._away("list", prefix or "all", error)

    def link(self, key: str, *, content_type: str, file_name: str) -> str | None:
        """Returns a signed URL, made here without asking S3; None where callers cannot reach it."""
        name = self._name(key)
        if self._links is None:
            return None
        try:
            url: str = self._signer.generate_presigned_url(
                "get_object",
                Params={
                    "Bucket": self._bucket,
                    "Key": name,
                    "ResponseContentType": content_type,
                    "ResponseContentDisposition": f'attachment; filename="{_UNSAFE.sub("_", file_name)}"',
                },
                ExpiresIn=self._links.valid_s,
            )
        except self._errors as error:
            self._away("link to", key, error)
        return url

    def close(self) -> None:
        """Gives up connections; idempotent."""
        self._client.close()
        self._signer.close()

    def _name(self, key: str) -> str:
        return self._prefix + check_key(key)

    def _look(self, key: str) -> BlobEntry | None:
        name = self._name(key)
        try:
            head = self._client.head_object(Bucket=self._bucket, Key=name)
        except self._errors as error:
            if fault_of(error) is Fault.NO_OBJECT:
                return None
            self._away("look at", key, error)
        return BlobEntry(key, int(head["ContentLength"]), head["LastModified"].timestamp())

    def _away(self, what: str, key: str, error: Exception) -> NoReturn:
        raise BlobsUnavailableError(f"cannot {what} {key} in s3://{self._bucket}: {error}") from error


def _is_key(key: str) -> bool:
    """Somebody else's objects may lie in the bucket: what no `put` can have written is none of ours."""
    try:
        check_key(key)
    except ValueError:
        return False
    return True
