"""Chooses the object store's adapter; the only module that imports one."""

from batchfleet.objects.port import ObjectStore
from batchfleet.objects.s3_client import S3Settings, S3Terms
from batchfleet.objects.s3_objects import S3Objects


def connect_objects(settings: S3Settings, terms: S3Terms | None = None) -> ObjectStore:
    """Returns the store of callers' objects; nothing is connected before it is used."""
    return S3Objects(settings, terms)
