# syntax=docker/dockerfile:1
# Batchfleet's images. Three targets of one builder:
#   cpu    API, scheduler and workers on CPUs
#   gpu    the same with ONNX Runtime for CUDA; the driver is the host's, CUDA and cuDNN come as Python packages
#   tools  the same as cpu with what builds the demo model; for one-shot jobs
# `docker build --target cpu -t batchfleet:cpu .`
ARG PYTHON=3.11-slim-bookworm

# -- the wheel, and an environment for each target; nothing of these stages is in an image but /opt/batchfleet ------
FROM python:${PYTHON} AS builder
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY batchfleet batchfleet
COPY api api
COPY workers workers
COPY scheduler scheduler
COPY migrations migrations
RUN pip wheel --no-deps --wheel-dir /wheels . \
    && python -m venv --without-pip /opt/batchfleet

FROM builder AS cpu-environment
RUN pip --python /opt/batchfleet/bin/python install "batchfleet[cpu,otel] @ file://$(echo /wheels/batchfleet-*.whl)"

FROM builder AS gpu-environment
RUN pip --python /opt/batchfleet/bin/python install "batchfleet[gpu,otel] @ file://$(echo /wheels/batchfleet-*.whl)"

FROM builder AS tools-environment
RUN pip --python /opt/batchfleet/bin/python install pip "batchfleet[demo,otel] @ file://$(echo /wheels/batchfleet-*.whl)"

# -- what all images share ------------------------------------------------------------------------------------------
FROM python:${PYTHON} AS runtime
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="Batchfleet" \
      org.opencontainers.image.description="A message-queue-driven, asynchronous inference worker fleet" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0"
# The folders belong to the user, so that an empty volume mounted over one of them does as well.
RUN groupadd --gid 10001 batchfleet \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin batchfleet \
    && install -d -o 10001 -g 10001 /var/lib/batchfleet \
        /var/lib/batchfleet/blobs /var/lib/batchfleet/models /var/lib/batchfleet/state
ENV PATH=/opt/batchfleet/bin:${PATH} \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp
WORKDIR /var/lib/batchfleet
USER 10001:10001
# Exec form, and every command becomes its service by exec: SIGTERM reaches the process that drains.
STOPSIGNAL SIGTERM
ENTRYPOINT ["batchfleet"]
CMD ["--help"]

FROM runtime AS gpu
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=gpu-environment /opt/batchfleet /opt/batchfleet

FROM runtime AS tools
COPY --from=tools-environment /opt/batchfleet /opt/batchfleet

# The last stage is what `docker build .` makes.
FROM runtime AS cpu
COPY --from=cpu-environment /opt/batchfleet /opt/batchfleet
