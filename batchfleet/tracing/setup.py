"""Makes the tracer of a process out of its settings."""

from batchfleet import __version__
from batchfleet.settings import Settings, SettingsError
from batchfleet.tracing.tracer import Tracer


class TracingUnavailableError(SettingsError):
    """Traces are asked for, and what sends them is not installed."""

    code = "tracing_unavailable"


def setup_tracing(settings: Settings, service: str, instance: str) -> Tracer | None:
    """Returns the tracer of this process, or None where nobody asked for one.

    Call it after any fork: it starts the thread that sends.

    Args:
        settings: Where traces go, and which share of them.
        service: `api`, `worker` or `scheduler`.
        instance: Which of them; fresh at each start.

    Raises:
        TracingUnavailableError: If traces are asked for without the extra `otel`.
    """
    if settings.otlp_endpoint is None:
        return None
    try:
        # Here and nowhere else: a process without traces imports nothing of OpenTelemetry.
        from batchfleet.tracing.otel import OtlpSink  # noqa: PLC0415
    except ImportError as error:
        raise TracingUnavailableError(
            f"BATCHFLEET_OTLP_ENDPOINT is set, and what sends traces is not installed ({error}): "
            "pip install 'batchfleet[otel]'"
        ) from error
    resource = {
        "service.name": f"batchfleet-{service}",
        "service.namespace": "batchfleet",
        "service.instance.id": instance,
        "service.version": __version__,
    }
    return Tracer(OtlpSink(settings.otlp_endpoint, resource), settings.trace_sample)
