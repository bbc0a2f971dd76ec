"""LitServe: worker processes behind uvicorn, batched by a loop in each worker."""

from typing import Any

import litserve

from benchmarks.peers.servers.embed import Embedder, Setup


class Embed(litserve.LitAPI):  # type: ignore[misc]  # LitServe is not installed where types are checked
    """Embeds what a batch of requests carries."""

    def setup(self, device: str) -> None:
        """Loads the model, in the worker."""
        del device
        self._setup = Setup.from_environment()
        self._embedder = Embedder(self._setup)

    def decode_request(self, request: dict[str, str]) -> str:
        """Takes the text out of a body."""
        return request["text"]

    def predict(self, texts: Any) -> Any:
        """Takes a list of texts where batches are allowed, one text where not."""
        if self._setup.batch == 1:
            return self._embedder.answers([texts])[0]
        return self._embedder.answers(texts)

    def batch(self, inputs: list[str]) -> list[str]:
        """Hands the texts on as they are; LitServe's own would try to stack them."""
        return inputs

    def unbatch(self, output: list[Any]) -> list[Any]:
        """Hands the vectors on as they are."""
        return output

    def encode_response(self, output: Any) -> dict[str, Any]:
        """Makes the body of an answer."""
        return {"vector": output}


if __name__ == "__main__":
    setup = Setup.from_environment()
    api = Embed(max_batch_size=setup.batch, batch_timeout=setup.wait_ms / 1e3 if setup.batch > 1 else 0.0)
    server = litserve.LitServer(
        api,
        accelerator="cpu",
        devices=1,
        workers_per_device=setup.workers,
        timeout=60,
        fast_queue=setup.pool == "fast-queue",
    )
    server.run(
        host="127.0.0.1",
        port=setup.port,
        num_api_servers=1 if setup.pool == "one-front" else None,
        log_level="warning",
        generate_client_file=False,
        access_log=False,
    )
