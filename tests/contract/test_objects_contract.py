"""The contract of `ObjectStore`, on both S3 servers: what callers are told of their own objects."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from batchfleet.objects.connect import connect_objects
from batchfleet.objects.port import (
    ObjectForbiddenError,
    ObjectNotFoundError,
    ObjectStore,
    ObjectsUnavailableError,
    ObjectTooLargeError,
)
from batchfleet.objects.s3_client import S3Terms
from batchfleet.objects.uri import ObjectUri
from batchfleet.settings import Settings
from tests.support.s3proxy import FaultyProxy, Trouble
from tests.support.s3servers import Bucket, S3Server

SHORT = S3Terms(connect_s=1.0, read_s=0.5, attempts=2)
LIMIT = 1_000_000


def open_objects(endpoint: str) -> ObjectStore:
    return connect_objects(Settings(s3_endpoint_url=endpoint), SHORT)


@pytest.fixture
def objects(bucket: Bucket) -> Iterator[ObjectStore]:
    with closing(open_objects(bucket.server.url)) as store:
        yield store


@pytest.mark.parametrize("key", ["in.json", "a/b/c.jsonl", "with space/ü+&=.json", "x" * 200])
@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 1_000])
def test_an_object_is_read_as_it_was_put(bucket: Bucket, objects: ObjectStore, key: str, data: bytes) -> None:
    """Keys are S3's own: nothing in them is percent-encoded, or decoded."""
    bucket.put(key, data)

    assert objects.read(ObjectUri(bucket.name, key), limit=LIMIT) == data


def test_a_key_that_looks_encoded_is_not_decoded(moto_bucket: Bucket) -> None:
    """Moto only: the other server signs what such a key decodes to."""
    moto_bucket.put("%41?#.json", b"x")
    moto_bucket.put("A?#.json", b"wrong")
    with closing(open_objects(moto_bucket.server.url)) as objects:
        assert objects.read(ObjectUri(moto_bucket.name, "%41?#.json"), limit=LIMIT) == b"x"


def test_an_object_is_written_whole_with_its_type_and_replaced(bucket: Bucket, objects: ObjectStore) -> None:
    uri = ObjectUri(bucket.name, "out/ü 1.json")
    objects.write(uri, b"long and old", content_type="text/plain")
    objects.write(uri, b"{}", content_type="application/json")

    assert bucket.get(uri.key) == b"{}"
    assert bucket.head(uri.key)["ContentType"] == "application/json"
    assert objects.read(uri, limit=2) == b"{}"


def test_what_is_not_there_is_named(bucket: Bucket, objects: ObjectStore) -> None:
    with pytest.raises(ObjectNotFoundError, match=f"no object s3://{bucket.name}/nothing"):
        objects.read(ObjectUri(bucket.name, "nothing"), limit=LIMIT)
    nowhere = ObjectUri("no-such-bucket-here", "x")
    with pytest.raises(ObjectNotFoundError, match="no bucket 'no-such-bucket-here'"):
        objects.read(nowhere, limit=LIMIT)
    with pytest.raises(ObjectNotFoundError, match="no bucket 'no-such-bucket-here'"):
        objects.write(nowhere, b"x", content_type="a/b")


def test_an_object_over_the_limit_is_not_read(bucket: Bucket, objects: ObjectStore) -> None:
    bucket.put("x", bytes(101))

    assert len(objects.read(ObjectUri(bucket.name, "x"), limit=101)) == 101
    with pytest.raises(ObjectTooLargeError, match="has 101 bytes; 100 are allowed"):
        objects.read(ObjectUri(bucket.name, "x"), limit=100)


def test_what_a_policy_denies_is_forbidden(bucket: Bucket) -> None:
    bucket.put("x", b"")
    with FaultyProxy(bucket.server) as proxy, closing(open_objects(proxy.url)) as objects:
        proxy.fail(Trouble.DENIED)
        with pytest.raises(ObjectForbiddenError, match="AccessDenied"):
            objects.read(ObjectUri(bucket.name, "x"), limit=LIMIT)
        with pytest.raises(ObjectForbiddenError, match="AccessDenied"):
            objects.write(ObjectUri(bucket.name, "x"), b"", content_type="a/b")

        assert proxy.failed == 2, "what is forbidden is not asked for again"


@pytest.mark.parametrize("trouble", [Trouble.SLOW_DOWN, Trouble.INTERNAL, Trouble.CUT])
def test_trouble_is_retried_and_then_told(bucket: Bucket, trouble: Trouble) -> None:
    bucket.put("x", bytes(200_000))
    uri = ObjectUri(bucket.name, "x")
    with FaultyProxy(bucket.server) as proxy, closing(open_objects(proxy.url)) as objects:
        proxy.fail(trouble, times=1)
        assert objects.read(uri, limit=LIMIT) == bytes(200_000)

        proxy.fail(trouble)
        with pytest.raises(ObjectsUnavailableError):
            objects.read(uri, limit=LIMIT)


@pytest.mark.parametrize("variable", ["AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"])
def test_our_own_wrong_credentials_are_not_the_callers_fault(
    nanio_bucket: Bucket, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """A key that was rotated must not fail jobs for good; and nobody is shown it."""
    nanio_bucket.put("x", b"")
    monkeypatch.setenv(variable, "WRONG-AND-SECRET")
    with closing(open_objects(nanio_bucket.server.url)) as objects, pytest.raises(ObjectsUnavailableError) as caught:
        objects.read(ObjectUri(nanio_bucket.name, "x"), limit=LIMIT)

    assert "WRONG-AND-SECRET" not in str(caught.value)


def test_a_server_that_is_away_or_hangs_is_unavailable(own_nanio: S3Server) -> None:
    bucket = own_nanio.make_bucket()
    bucket.put("x", b"1")
    uri = ObjectUri(bucket.name, "x")
    with closing(open_objects(own_nanio.url)) as objects:
        assert objects.read(uri, limit=LIMIT) == b"1"
        own_nanio.pause()
        with pytest.raises(ObjectsUnavailableError):
            objects.read(uri, limit=LIMIT)
        own_nanio.kill()
        with pytest.raises(ObjectsUnavailableError):
            objects.read(uri, limit=LIMIT)
        own_nanio.start()

        assert objects.read(uri, limit=LIMIT) == b"1"


def test_boto3_is_loaded_by_the_first_object_only() -> None:
    """It costs 0.3 s and 30 MB, which fleets without S3 do not pay."""
    import subprocess
    import sys

    code = (
        "import sys, workers.main, api.parts, scheduler.main; print('boto3' in sys.modules, 'botocore' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "False"]
