"""PySpark Structured Streaming jobs that read the telemetry of Locus brokers."""
