"""Chooses the blob store's adapter by the URL's scheme; the only module that imports one."""

from batchfleet.objects.s3_client import S3Terms
from batchfleet.results.blobs import BlobStore
from batchfleet.results.local_blobs import LocalBlobs
from batchfleet.results.s3_blobs import Links, S3Blobs
from batchfleet.settings import Settings, bucket_of, folder_of


def connect_blobs(settings: Settings, terms: S3Terms | None = None) -> BlobStore:
    """Returns the blob store of `blob_url`; a bucket is not asked for before it is used.

    Args:
        settings: All settings; `blob_url`, `s3_…` and `presign_s` count.
        terms: How long S3 is waited for.

    Raises:
        BlobsUnavailableError: If the folder cannot be used.
    """
    if settings.blob_url.startswith("s3:"):
        bucket, prefix = bucket_of(settings.blob_url)
        links = None if settings.s3_public_url == "none" else Links(settings.presign_s, settings.s3_public_url)
        return S3Blobs(bucket, prefix, settings, links=links, terms=terms)
    return LocalBlobs(folder_of(settings.blob_url))
