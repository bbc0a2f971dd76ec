"""uvicorn, with a stop that does not wait for long polls."""

import logging
import socket
from typing import Any

import uvicorn

from api.app import Api
from batchfleet.logs import Action
from batchfleet.settings import Settings

logger = logging.getLogger(__name__)

STOP_S = 20
"""Requests that still run this long after the signal are cut off."""

KEEP_ALIVE_S = 75
"""Longer than clients and proxies keep an idle connection, so that they close it and never meet a closed one."""


class Server(uvicorn.Server):
    """Serves one application until it is told to stop.

    Args:
        api: The application.
        settings: Where to listen.
    """

    def __init__(self, api: Api, settings: Settings) -> None:
        super().__init__(
            uvicorn.Config(
                api,
                host=settings.api_host,
                port=settings.api_port,
                loop="uvloop",
                http="httptools",
                ws="none",
                lifespan="on",
                access_log=False,
                log_config=None,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=STOP_S,
            )
        )
        self._api = api

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts to listen, and says where."""
        await super().startup(sockets=sockets)
        for address in self.addresses():
            logger.info("listening", extra={"action": Action.PROCESS_READY, "url": address})

    def addresses(self) -> list[str]:
        """Returns the URLs under which it can be reached; with port 0 the kernel chose one."""
        names: list[Any] = [sock.getsockname() for server in getattr(self, "servers", ()) for sock in server.sockets]
        return [f"http://{_host(name[0])}:{name[1]}" for name in names if isinstance(name, tuple)]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answers the long polls with the present state, then ends as usual."""
        logger.info("stopping", extra={"action": Action.DRAINING, "waiting": len(self._api.services.waiters)})
        self._api.release_waiters()
        await super().shutdown(sockets=sockets)


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
