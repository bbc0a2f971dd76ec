"""No secret gets into a log, wherever it stands."""

import io
import json
import logging
import traceback
from collections.abc import Iterator
from typing import Any, Literal

import pytest

from batchfleet.access.keys import new_key
from batchfleet.logs import setup_logging
from batchfleet.masking import mask_text, mask_value

KEY = new_key()
SIGNATURE = "fe5f80f77d5fa3beca038a248ff027d0445342fe2855ddc963176630326f1024"
SECRETS = {
    "an API key": (KEY.text, KEY.secret),
    "a webhook secret": ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw+/=", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    "a password in a URL": ("postgresql+psycopg://fleet:hunter2@db:5432/fleet", "hunter2"),
    "a password without a user": ("redis://:hunter2@broker:6379/0", "hunter2"),
    "a password with signs": ("amqp://me:hun:t@er2@h/", "er2"),
    "a presigned signature": (f"https://s3/b/k?X-Amz-Expires=900&X-Amz-Signature={SIGNATURE}&x=1", SIGNATURE),
    "a presigned credential": (
        "https://s3/b/k?X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F2026%2Fus-east-1",
        "AKIAIOSFODNN7EXAMPLE",
    ),
    "a presigned token": ("https://s3/b/k?x-amz-security-token=FwoGZXIvYXdzEXAMPLE&y=2", "FwoGZXIvYXdzEXAMPLE"),
    "an elder signature": (
        "https://s3/b/k?AWSAccessKeyId=AKIAEXAMPLE&Signature=vjbyPxybdZaNmGa%2ByT272YEAiv4%3D",
        "vjbyPxybdZaNmGa",
    ),
    "a quoted URL": ("next=https%3A%2F%2Fs3%2Fb%3FX-Amz-Signature%3D" + SIGNATURE, SIGNATURE),
    "a bearer": ("Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.e30.abc", "eyJhbGciOiJIUzI1NiJ9"),
    "a header as a dict shows it": ("{'authorization': 'Basic dXNlcjpodW50ZXIy'}", "dXNlcjpodW50ZXIy"),
    "an AWS header": (f"AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/20260101/x, Signature={SIGNATURE}", SIGNATURE),
}
FORMS: tuple[Literal["text", "json"], ...] = ("text", "json")


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


def logged(form: Literal["text", "json"], message: str, *args: object, **more: Any) -> str:
    stream = io.StringIO()
    setup_logging("debug", form, stream=stream, fields=more.pop("fields", None))
    logging.getLogger("batchfleet.test").error(message, *args, **more)
    if form == "json":
        json.loads(stream.getvalue())
    return stream.getvalue()


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("shown", "secret"), SECRETS.values(), ids=SECRETS)
class TestASecret:
    def test_in_the_message(self, form: Literal["text", "json"], shown: str, secret: str) -> None:
        assert secret not in logged(form, f"cannot use {shown} now")

    def test_in_an_argument(self, form: Literal["text", "json"], shown: str, secret: str) -> None:
        assert secret not in logged(form, "cannot use %s and %r", shown, shown)

    def test_in_a_field(self, form: Literal["text", "json"], shown: str, secret: str) -> None:
        nested = {"a": [{"b": (shown,)}], shown: 1, "bytes": shown.encode(), "object": ValueError(shown)}
        assert secret not in logged(form, "x", extra={"url": shown, "nested": nested, "list": [shown]})

    def test_in_a_field_of_the_process(self, form: Literal["text", "json"], shown: str, secret: str) -> None:
        assert secret not in logged(form, "x", fields={"database": shown})

    def test_in_an_exception_and_its_causes(self, form: Literal["text", "json"], shown: str, secret: str) -> None:
        try:
            try:
                raise OSError(f"cannot reach {shown}")  # noqa: TRY301 - its traceback is what is looked at
            except OSError as exc:
                raise ValueError(shown) from exc
        except ValueError:
            line = logged(form, "failed", exc_info=True)
        assert "ValueError" in line
        assert secret not in line

    def test_in_a_stack(self, form: Literal["text", "json"], shown: str, secret: str) -> None:
        line = logged(form, "x", extra={"stack_text": "".join(traceback.format_stack()) + shown}, stack_info=True)
        assert secret not in line


def test_what_is_safe_to_show_stays() -> None:
    assert mask_text(KEY.text) == f"bf_{KEY.id}_***"
    assert (
        mask_text("redis://:pw@h:1/0 and postgresql://me:pw@h/db") == "redis://:***@h:1/0 and postgresql://me:***@h/db"
    )
    assert (
        mask_text("http://h:8080/v1/jobs?wait=10, mail me@example.org")
        == "http://h:8080/v1/jobs?wait=10, mail me@example.org"
    )
    assert mask_text("X-Amz-Signature=abc&X-Amz-Date=20260101") == "X-Amz-Signature=***&X-Amz-Date=20260101"
    assert mask_text("jobs of bf_16 models, 3 claimed") == "jobs of bf_16 models, 3 claimed"


def test_values_keep_their_form() -> None:
    assert mask_value({"jobs": ["job_1", 2], "ok": True, "none": None}) == {
        "jobs": ["job_1", 2],
        "ok": True,
        "none": None,
    }
    deep: list[Any] = [KEY.text]
    for _ in range(10):
        deep = [deep]
    assert KEY.secret not in str(mask_value(deep))
