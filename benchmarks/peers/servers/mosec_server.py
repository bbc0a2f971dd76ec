"""mosec: one stage of workers, batched by its Rust front."""

import json
import sys
from typing import Any

from mosec import Server, Worker

from benchmarks.peers.servers.embed import Embedder, Setup


class Embed(Worker):  # type: ignore[misc]  # mosec is not installed where types are checked
    """Embeds what a batch of requests carries."""

    def __init__(self) -> None:
        super().__init__()
        self._setup = Setup.from_environment()
        self._embedder = Embedder(self._setup)

    def forward(self, data: Any) -> Any:
        """Takes a list of bodies where batches are allowed, one body where not."""
        if self._setup.batch == 1:
            return self._embedder.answers([data["text"]])[0]
        return self._embedder.answers([body["text"] for body in data])

    def serialize(self, data: Any) -> bytes:
        """Writes plain JSON; mosec's own indents it, which costs more than the forward pass of a short text."""
        return json.dumps(data).encode()


if __name__ == "__main__":
    setup = Setup.from_environment()
    sys.argv[1:] = ["--address", "127.0.0.1", "--port", str(setup.port), "--timeout", "60000", "--log-level", "warning"]
    server = Server()
    server.append_worker(Embed, num=setup.workers, max_batch_size=setup.batch, max_wait_time=max(1, setup.wait_ms))
    server.run()
