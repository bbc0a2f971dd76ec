"""BentoML: as many service processes as cores, each with its adaptive batcher."""

from typing import Any

import bentoml

from benchmarks.peers.servers.embed import Embedder, Setup

SETUP = Setup.from_environment()


@bentoml.service(
    workers=SETUP.workers,
    traffic={"timeout": 120, "max_concurrency": 1024},
    logging={"access": {"enabled": False}},
    metrics={"enabled": False},
)
class Embed:
    """Embeds what requests carry."""

    def __init__(self) -> None:
        self._embedder = Embedder(SETUP)

    # A batchable endpoint takes lists and joins them; the other one takes a list of one text, too.
    @bentoml.api(  # type: ignore[untyped-decorator]  # BentoML is not installed where types are checked
        batchable=SETUP.batch > 1,
        max_batch_size=max(2, SETUP.batch),  # it takes no 1, and ignores it where not batchable
        max_latency_ms=max(1, SETUP.wait_ms),
        route="/predict",
    )
    def embed(self, text: list[str]) -> list[Any]:
        """Embeds the texts of one request, or of a batch that BentoML has formed."""
        return self._embedder.answers(text)
