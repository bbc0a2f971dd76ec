"""`/v1/models`: what can be asked for, in OpenAI's list shape with ours beside it."""

from litestar import Response, get
from litestar.handlers import HTTPRouteHandler

from api.query import read_query
from api.respond import AnyRequest, answer
from api.schemas import ModelList
from api.services import Services
from api.views import view_of_model
from batchfleet.access.keys import Role


class ModelRoutes:
    """Shows models.

    Args:
        services: The working parts.
    """

    def __init__(self, services: Services) -> None:
        self._services = services

    def handlers(self) -> list[HTTPRouteHandler]:
        """Returns the route handlers."""
        return [
            get("/v1/models", name="list_models")(self.page),
            get("/v1/models/{name:str}", name="get_model")(self.get),
        ]

    async def page(self, request: AnyRequest) -> Response[bytes]:
        """Lists all models."""
        await self._services.auth.caller(request, Role.READ)
        read_query(request.scope)
        models = await self._services.catalog.listing()
        views = [view_of_model(model, await self._services.live_workers(model.pinned.ref.name)) for model in models]
        return answer(ModelList(views))

    async def get(self, request: AnyRequest) -> Response[bytes]:
        """Shows one model."""
        await self._services.auth.caller(request, Role.READ)
        read_query(request.scope)
        name: str = request.path_params["name"]
        model = await self._services.catalog.entry(name)
        return answer(view_of_model(model, await self._services.live_workers(name)))
