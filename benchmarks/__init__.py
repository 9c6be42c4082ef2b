"""Benchmarks: this broker beside Apache Kafka and beside the fastest server that could answer at all."""
