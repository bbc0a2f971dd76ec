"""Submitting any number of jobs: cut into chunks, each sent until every job of it is taken or refused for good."""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from batchfleet.client.errors import TooLargeError
from batchfleet.client.transport import Transport, decoded
from batchfleet.client.values import JobFailure, JobRequest, Submission, SubmissionList

_HEADERS: Final = {"Content-Type": "application/x-ndjson"}
_NOT_TAKEN: Final = frozenset({"overloaded"})
_UNSURE: Final = frozenset({"unavailable", "store_unavailable"})
"""The job may have been taken: it is sent again only with a key."""


def plain(value: Any) -> Any:
    """Encoder's hook: NumPy's arrays and numbers are sent as JSON's.

    Raises:
        NotImplementedError: For anything else.
    """
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    raise NotImplementedError(f"a {type(value).__name__} has no JSON form")


encoder: Final = msgspec.json.Encoder(enc_hook=plain)


class BulkSubmission:
    """One call's jobs on their way.

    Args:
        transport: Sends them.
        chunk: Jobs in one request at most.
        chunk_bytes: Bytes in one request at most; a larger job goes alone.
        keys: Gives an idempotency key to each job that has none.
        patience_s: For how long to go on with a chunk while the fleet is overloaded.
    """

    def __init__(
        self, transport: Transport, *, chunk: int, chunk_bytes: int, keys: bool, patience_s: float | None
    ) -> None:
        if chunk < 1 or chunk_bytes < 1:
            raise ValueError("chunk and chunk_bytes must be positive")
        self._transport = transport
        self._chunk = chunk
        self._chunk_bytes = chunk_bytes
        self._prefix = uuid.uuid4().hex if keys else None
        self._patience_s = patience_s

    def run(self, requests: Iterable[JobRequest]) -> Iterator[list[Submission]]:
        """Yields what became of the jobs, chunk by chunk, in order; reads `requests` no further than it must.

        Raises:
            ApiError: If the fleet refuses a whole chunk, after retries.
            ConnectionFailedError: If nobody answers.
        """
        first = 0
        for lines, keyed in self._chunks(requests):
            answers = self._sent(lines, keyed=keyed)
            yield [msgspec.structs.replace(answer, index=first + index) for index, answer in enumerate(answers)]
            first += len(lines)

    def _chunks(self, requests: Iterable[JobRequest]) -> Iterator[tuple[list[bytes], bool]]:
        """Yields encoded jobs, and whether each of them has a key."""
        lines: list[bytes] = []
        size, keyed = 0, True
        for number, request in enumerate(requests):
            if request.idempotency_key is None and self._prefix is not None:
                request = msgspec.structs.replace(request, idempotency_key=f"{self._prefix}-{number}")  # noqa: PLW2901
            line = encoder.encode(request)
            if lines and (len(lines) == self._chunk or size + len(line) > self._chunk_bytes):
                yield lines, keyed
                lines, size, keyed = [], 0, True
            lines.append(line)
            size += len(line) + 1
            keyed = keyed and request.idempotency_key is not None
        if lines:
            yield lines, keyed

    def _sent(self, lines: list[bytes], *, keyed: bool) -> list[Submission]:
        """Sends a chunk; of a partial answer, those again that were not taken for want of room or of a database."""
        answers = self._posted(lines, keyed=keyed)
        transport, codes = self._transport, _NOT_TAKEN | (_UNSURE if keyed else frozenset())
        for attempt in range(transport.policy.retries):
            left = [index for index, answer in enumerate(answers) if answer.error and answer.error.code in codes]
            if not left:
                break
            transport.sleep(transport.policy.delay_s(attempt, None))
            for index, answer in zip(left, self._posted([lines[index] for index in left], keyed=keyed), strict=True):
                answers[index] = answer
        return answers

    def _posted(self, lines: Sequence[bytes], *, keyed: bool) -> list[Submission]:
        try:
            response = self._transport.send(
                "POST",
                "/v1/jobs/bulk",
                content=b"\n".join(lines),
                headers=_HEADERS,
                repeatable=keyed,
                patience_s=self._patience_s,
            )
        except TooLargeError as error:
            if len(lines) == 1:  # its own fault, which is no reason to keep the others from being taken
                return [Submission(index=0, error=JobFailure(error.code, str(error), field=error.field))]
            half = len(lines) // 2
            return self._posted(lines[:half], keyed=keyed) + self._posted(lines[half:], keyed=keyed)
        answers = decoded(response, SubmissionList).jobs
        return _in_order(answers, len(lines))


def _in_order(answers: list[Submission], count: int) -> list[Submission]:
    """Returns one answer a job; one that is missing is told as a fault, never passed over."""
    by_index = {answer.index: answer for answer in answers}
    missing = JobFailure("internal_error", "the fleet's answer does not mention this job")
    return [by_index.get(index, Submission(index=index, error=missing)) for index in range(count)]
