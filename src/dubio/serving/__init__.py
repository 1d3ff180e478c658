"""A server that decides about rows: answers are retained or referred, referred rows wait in a queue for an expert."""

from dubio.serving.server import serve as serve
