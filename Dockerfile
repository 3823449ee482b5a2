# Two images from one file: `broker` (the last stage, small: brokers and the NATS servers between them) and `pipeline`
# (the same with Java, Spark and the dashboard).
#
#   docker build -t locus --target broker .
#   docker build -t locus-pipeline --target pipeline .
FROM python:3.11-slim-bookworm AS base
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY spatial_index spatial_index
COPY rl_policy rl_policy
COPY broker_plugins broker_plugins
COPY clients clients
COPY spark_jobs spark_jobs
COPY benchmarks benchmarks
# Of Arrow only what works on files stays: a third of it speaks other protocols, or is tests.
RUN python -m pip install --no-cache-dir --disable-pip-version-check '.[cluster,telemetry]' \
    && cd "$(python -c 'import pyarrow; print(pyarrow.__path__[0])')" \
    && rm -rf tests include src *flight* *s3* \
    && cd / && python -c 'import pyarrow.compute, pyarrow.dataset, pyarrow.parquet'
COPY docker/broker.yaml docker/nats.conf /etc/locus/
RUN useradd --system --uid 1883 --home-dir /data --no-create-home locus \
    && mkdir /data /telemetry /lake && chown locus:locus /data /telemetry /lake
WORKDIR /data

FROM base AS pipeline
RUN apt-get update && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
RUN cd /src && python -m pip install --no-cache-dir --disable-pip-version-check '.[spark,cluster,dashboard]' \
    && rm -rf "$(python -c 'import pandas; print(pandas.__path__[0])')/tests"
USER locus
EXPOSE 7077 8080
CMD ["locus", "pipeline", "--spool", "/telemetry", "--lake", "/lake"]

FROM base AS broker
USER locus
VOLUME /data
EXPOSE 1883
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s --retries=5 \
    CMD ["python", "-c", "import socket; socket.create_connection(('127.0.0.1', 1883), 2).close()"]
CMD ["locus", "broker", "-c", "/etc/locus/broker.yaml"]
