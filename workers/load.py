"""Loads a model as this machine runs it best: what is set explicitly, what was tuned, what a short look says."""

import logging

from batchfleet.embedded.tune.recall import recall_here
from batchfleet.inference.memory import give_back_memory
from batchfleet.inference.registry import LoadedModel, load_executor, load_runtime
from batchfleet.inference.select import choose_variant
from batchfleet.inference.tuning import Trial
from batchfleet.logs import Action
from batchfleet.models.repository import ModelFiles
from batchfleet.settings import Settings

logger = logging.getLogger(__name__)


class ModelLoader:
    """Chooses threads once, and of each model a variant and a token budget; what the settings state always wins."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._tuning = recall_here(settings.state_dir)
        self.threads = self._threads()

    def __call__(self, files: ModelFiles) -> LoadedModel:
        """Loads a model.

        Raises:
            RuntimeUnavailableError: If this machine can run no variant of it, or not the one that is set.
            ModelConfigError: If the variant that is set does not exist, or the model's options are wrong.
            ModelError: If the graph cannot be loaded.
        """
        tuned = self._tuned(files)
        name = self._settings.worker_variant
        if name != "auto":
            other = f" (tuning found {tuned.variant} faster)" if tuned and tuned.variant != name else ""
            self._tell(f"{name}, as set{other}.", files)
        elif tuned:
            name = tuned.variant
            self._tell(
                f"{name} was the fastest here when this machine was tuned ({tuned.texts_per_s:.0f} texts/s).", files
            )
        else:
            name = self._measured(files)
        budget = tuned.max_batch_tokens if tuned and tuned.variant == name else None
        model = load_executor(files, name, threads=self.threads, max_batch_tokens=budget)
        give_back_memory()
        return model

    def _threads(self) -> int:
        explicit = "worker_threads" in self._settings.model_fields_set
        return self._settings.worker_threads if explicit or self._tuning is None else self._tuning.threads

    def _tuned(self, files: ModelFiles) -> Trial | None:
        """Returns how the model ran best, if it was measured with these threads and may still run so."""
        tuned = self._tuning.best.get(files.digest) if self._tuning else None
        if tuned is None or tuned.threads != self.threads:
            return None
        variant = next((one for one in files.config.variants if one.name == tuned.variant), None)
        allowed = self._settings.worker_providers
        if variant is None or (allowed and variant.provider not in allowed):
            return None
        if load_runtime(variant.runtime).refusal(variant) is not None:
            return None
        return tuned

    def _measured(self, files: ModelFiles) -> str:
        selection = choose_variant(
            files,
            threads=self.threads,
            providers=self._settings.worker_providers,
            state_file=self._settings.state_dir / "variants.json",
        )
        self._tell(selection.reason, files)
        return selection.chosen

    def _tell(self, reason: str, files: ModelFiles) -> None:
        logger.info("%s", reason, extra={"action": Action.VARIANT_CHOSEN, "model": str(files.ref)})
