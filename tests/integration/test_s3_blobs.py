"""The blob store in S3 when S3 is away, slow, busy or wrong; its checksums and links."""

import base64
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from botocore.loaders import JSONFileLoader

from batchfleet.objects.s3_client import S3Terms, make_s3_client
from batchfleet.results.blobs import BlobRefusedError, BlobsUnavailableError
from batchfleet.results.connect import connect_blobs
from batchfleet.results.s3_blobs import Links, S3Blobs
from batchfleet.settings import Settings
from tests.support.s3proxy import FaultyProxy, Trouble
from tests.support.s3servers import Bucket, S3Server

SHORT = S3Terms(connect_s=1.0, read_s=0.5, attempts=2)
LINKS = Links()


def open_blobs(
    bucket: Bucket, endpoint: str | None = None, terms: S3Terms = SHORT, links: Links | None = LINKS
) -> S3Blobs:
    settings = Settings(s3_endpoint_url=endpoint or bucket.server.url)
    return S3Blobs(bucket.name, "results", settings, links=links, terms=terms)


@pytest.fixture
def blobs(bucket: Bucket) -> Iterator[S3Blobs]:
    with closing(open_blobs(bucket)) as store:
        yield store


def test_blobs_lie_under_the_prefix_of_the_url(bucket: Bucket) -> None:
    for url in (bucket.url, f"{bucket.url}/", f"{bucket.url}/deep/in/it", f"{bucket.url}/slash/"):
        with closing(connect_blobs(Settings(blob_url=url, s3_endpoint_url=bucket.server.url))) as store:
            store.put("job/1", b"x")

    assert bucket.keys() == ["deep/in/it/job/1", "job/1", "slash/job/1"]


def test_what_others_put_there_is_not_listed(bucket: Bucket, blobs: S3Blobs) -> None:
    bucket.put("results/job/1", b"")
    bucket.put("results/job/no key of ours", b"")

    assert [entry.key for entry in blobs.list()] == ["job/1"]


def test_the_checksum_is_sent_and_kept(moto_bucket: Bucket) -> None:
    data = bytes(range(256)) * 5_000
    with closing(open_blobs(moto_bucket)) as blobs:
        blobs.put("job/1", data)
        assert blobs.get("job/1") == data

    assert moto_bucket.head("results/job/1")["ChecksumCRC32"] == base64.b64encode(
        zlib.crc32(data).to_bytes(4, "big")
    ).decode("ascii")


def test_bytes_that_changed_are_noticed_by_the_reader(bucket: Bucket, blobs: S3Blobs) -> None:
    """Also on servers that know no checksums: it travels as metadata of our own."""
    blobs.put("job/1", b"good")
    metadata = bucket.head("results/job/1")["Metadata"]
    with closing(bucket.server.client()) as client:
        client.put_object(Bucket=bucket.name, Key="results/job/1", Body=b"evil", Metadata=metadata)

    with pytest.raises(BlobsUnavailableError, match="checksum"):
        blobs.get("job/1")


def test_a_listing_of_many_pages_comes_whole(bucket: Bucket) -> None:
    settings = Settings(s3_endpoint_url=bucket.server.url)
    wanted = [f"{number:02d}/1" for number in range(20)]
    with closing(S3Blobs(bucket.name, "results", settings, page=3)) as blobs:
        for key in wanted:
            blobs.put(key, b"")

        assert [entry.key for entry in blobs.list()] == wanted
        assert [entry.key for entry in blobs.list(after=wanted[4])] == wanted[5:]


def test_deleting_what_is_only_a_folder_of_blobs_deletes_nothing(moto_bucket: Bucket) -> None:
    with closing(open_blobs(moto_bucket)) as blobs:
        blobs.put("job/1", b"x")
        blobs.delete("job")
        blobs.delete("job/1/deeper")

        assert blobs.get("job/1") == b"x"


@pytest.mark.parametrize("trouble", [Trouble.SLOW_DOWN, Trouble.INTERNAL])
def test_a_busy_server_is_asked_again(bucket: Bucket, trouble: Trouble) -> None:
    with FaultyProxy(bucket.server) as proxy, closing(open_blobs(bucket, proxy.url)) as blobs:
        proxy.fail(trouble, times=1)
        blobs.put("job/1", b"x")
        proxy.fail(trouble, times=1)
        assert blobs.get("job/1") == b"x"

        assert proxy.failed == 2
    assert bucket.keys() == ["results/job/1"]


def test_a_server_that_stays_busy_is_unavailable_after_a_bounded_number_of_requests(bucket: Bucket) -> None:
    with FaultyProxy(bucket.server) as proxy, closing(open_blobs(bucket, proxy.url)) as blobs:
        proxy.fail(Trouble.SLOW_DOWN)
        with pytest.raises(BlobsUnavailableError, match="SlowDown"):
            blobs.put("job/1", b"x")

        assert proxy.failed == SHORT.attempts


def test_an_answer_that_breaks_off_is_asked_for_again(bucket: Bucket) -> None:
    """boto3 itself does not, once the body has begun."""
    data = bytes(300_000)
    with FaultyProxy(bucket.server) as proxy, closing(open_blobs(bucket, proxy.url)) as blobs:
        blobs.put("job/1", data)
        proxy.fail(Trouble.CUT, times=2)
        assert blobs.get("job/1") == data

        proxy.fail(Trouble.CUT)
        with pytest.raises(BlobsUnavailableError):
            blobs.get("job/1")


def test_a_blob_that_the_server_will_never_take_is_told_apart_from_an_outage(bucket: Bucket) -> None:
    with FaultyProxy(bucket.server) as proxy, closing(open_blobs(bucket, proxy.url)) as blobs:
        proxy.fail(Trouble.TOO_LARGE)
        with pytest.raises(BlobRefusedError):
            blobs.put("job/1", b"x")
        proxy.fail(Trouble.DENIED)
        with pytest.raises(BlobsUnavailableError, match="AccessDenied") as caught:
            blobs.put("job/1", b"x")

    assert not isinstance(caught.value, BlobRefusedError)


def test_a_server_that_was_killed_is_unavailable_and_then_works_again(own_nanio: S3Server) -> None:
    bucket = own_nanio.make_bucket()
    with closing(open_blobs(bucket)) as blobs:
        blobs.put("job/1", b"x")
        own_nanio.kill()
        for call in (
            blobs.get,
            blobs.exists,
            blobs.delete,
            lambda key: blobs.put(key, b"y"),
            lambda key: [*blobs.list()],
        ):
            with pytest.raises(BlobsUnavailableError):
                call("job/1")
        own_nanio.start()

        assert blobs.get("job/1") == b"x"


def test_a_server_that_hangs_is_given_up_in_time(own_nanio: S3Server) -> None:
    bucket = own_nanio.make_bucket()
    with closing(open_blobs(bucket)) as blobs:
        blobs.put("job/1", b"x")
        own_nanio.pause()
        for call in (blobs.get, blobs.exists, lambda key: blobs.put(key, b"y")):
            with pytest.raises(BlobsUnavailableError):
                call("job/1")
        own_nanio.resume()

        # The put that was given up may have arrived all the same: keys are written once, with one content.
        assert blobs.get("job/1") in {b"x", b"y"}


def test_a_missing_bucket_is_an_outage_and_not_a_missing_blob(bucket: Bucket) -> None:
    """Else results would seem gone to their clients, who would not come back."""
    wrong = Bucket(bucket.server, "no-such-bucket-here")
    with closing(open_blobs(wrong)) as blobs:
        with pytest.raises(BlobsUnavailableError, match="NoSuchBucket"):
            blobs.get("job/1")
        with pytest.raises(BlobsUnavailableError, match="NoSuchBucket"):
            blobs.put("job/1", b"x")


@pytest.mark.parametrize("variable", ["AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"])
def test_wrong_credentials_are_an_outage_and_are_not_shown(
    nanio_bucket: Bucket, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "WRONG-AND-SECRET")
    with closing(open_blobs(nanio_bucket)) as blobs, pytest.raises(BlobsUnavailableError) as caught:
        blobs.put("job/1", b"x")

    assert "WRONG-AND-SECRET" not in str(caught.value)


def test_no_credentials_are_an_outage(nanio_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with closing(open_blobs(nanio_bucket)) as blobs:
        with pytest.raises(BlobsUnavailableError, match="credentials"):
            blobs.put("job/1", b"x")
        with pytest.raises(BlobsUnavailableError, match="credentials"):
            blobs.link("job/1", content_type="a/b", file_name="x")


def test_a_link_carries_the_type_and_the_name_of_the_download(moto_bucket: Bucket) -> None:
    with closing(open_blobs(moto_bucket)) as blobs:
        blobs.put("job/1", b"result")
        url = blobs.link("job/1", content_type="application/x-npy", file_name='job_1"\r\nx.npy')
    assert url is not None

    answer = httpx.get(url)

    assert answer.content == b"result"
    assert answer.headers["content-type"] == "application/x-npy"
    assert answer.headers["content-disposition"] == 'attachment; filename="job_1___x.npy"'


def test_a_link_is_for_one_blob_and_ends(nanio_bucket: Bucket) -> None:
    with closing(open_blobs(nanio_bucket, links=Links(1))) as short, closing(open_blobs(nanio_bucket)) as long:
        short.put("job/1", b"result")
        brief = short.link("job/1", content_type="a/b", file_name="x")
        lasting = long.link("job/1", content_type="a/b", file_name="x")
    assert brief is not None
    assert lasting is not None
    query = parse_qs(urlsplit(lasting).query)
    assert query["X-Amz-Algorithm"] == ["AWS4-HMAC-SHA256"]
    assert query["X-Amz-Expires"] == ["900"]

    until = time.monotonic() + 30
    while httpx.get(brief).status_code != 403:
        assert time.monotonic() < until, "the link goes on working"

    assert httpx.get(lasting).content == b"result"
    assert httpx.get(lasting.replace("a%2Fb", "text%2Fhtml")).status_code == 403
    assert httpx.put(lasting, content=b"evil").status_code == 403


def test_a_link_names_the_server_as_callers_reach_it(nanio_bucket: Bucket) -> None:
    """Inside a cluster S3 has another name than outside, and a signature is for one host."""
    with FaultyProxy(nanio_bucket.server) as outside:
        settings = Settings(**(nanio_bucket.settings | {"s3_public_url": outside.url}))  # type: ignore[arg-type]
        with closing(connect_blobs(settings)) as blobs:
            blobs.put("job/1", b"result")
            assert outside.seen == []
            url = blobs.link("job/1", content_type="a/b", file_name="x")

        assert url is not None
        assert url.startswith(outside.url)
        assert httpx.get(url).content == b"result"


def test_where_callers_cannot_reach_the_server_there_are_no_links(nanio_bucket: Bucket) -> None:
    settings = Settings(**(nanio_bucket.settings | {"s3_public_url": "none"}))  # type: ignore[arg-type]
    with closing(connect_blobs(settings)) as blobs:
        assert blobs.link("job/1", content_type="a/b", file_name="x") is None


def test_many_threads_share_one_client(bucket: Bucket, blobs: S3Blobs) -> None:
    errors: list[BaseException] = []

    def work(name: int) -> None:
        try:
            for number in range(10):
                blobs.put(f"{name}/{number}", bytes([name]) * 1000)
                assert blobs.get(f"{name}/{number}") == bytes([name]) * 1000
        except BaseException as error:  # noqa: BLE001 - the test's whole question
            errors.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []


def test_a_second_client_reads_nothing_anew(nanio_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(**nanio_bucket.settings)  # type: ignore[arg-type]
    make_s3_client(settings).close()
    read: list[str] = []
    load = JSONFileLoader.load_file

    def noted(self: JSONFileLoader, path: str) -> object:
        read.append(path)
        return load(self, path)

    monkeypatch.setattr(JSONFileLoader, "load_file", noted)

    make_s3_client(settings).close()

    assert [path for path in read if "s3" in path or "endpoints" in path] == []
