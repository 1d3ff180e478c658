"""``dubio serve``: answer requests with a model and a policy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from dubio.cli.output import say
from dubio.cli.predict import ForceOption

MEBIBYTE = 1 << 20


def serve(
    model: Annotated[Path | None, typer.Argument()] = None,
    policy: Path | None = None,
    refer_all: bool = False,
    force: ForceOption = False,
    log: Path = Path("dubio-decisions"),
    keep_rows: Literal["referred", "none"] = "referred",
    address: str = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000,
    token_file: Path | None = None,
    allow_host: list[str] | None = None,
    batching: Annotated[bool, typer.Option("--batching/--no-batching")] = True,
    max_body: Annotated[int, typer.Option(min=1)] = 16,
    max_rows: Annotated[int, typer.Option(min=1)] = 256,
    max_requests: Annotated[int, typer.Option(min=1)] = 256,
) -> None:
    """Decide about rows over HTTP: answers are retained or referred, referred rows wait in a queue for an expert.

    The page of the queue is at the root of the address, the description of all endpoints at /openapi.json.

    Args:
        model: Folder of a model that dubio export wrote; if omitted, clients send probabilities.
        policy: A policy written by dubio refer fit; if omitted, the model's own.
        refer_all: Refer every row, without a policy: to have a first set labelled.
        log: Folder of the log of decisions; a server that is started again goes on with it.
        keep_rows: referred: keep the content of referred rows beside the log, for the queue; none: keep no content.
        address: Address to listen on; any but a loopback address needs a token.
        port: Port to listen on; 0 takes a free one.
        token_file: File of the token that requests must carry; if omitted: the variable DUBIO_SERVE_TOKEN.
        allow_host: A further name by which clients call the server; may be repeated.
        batching: Predict rows of concurrent requests together.
        max_body: Megabytes of a request.
        max_rows: Rows of a request, and of a batch.
        max_requests: Requests at a time; clients of further ones are told to try again.
    """
    from dubio.core.errors import MissingExtra
    from dubio.serving.server import serve as serve_model

    try:
        from dubio.serving.web import Limits
    except ImportError as fault:
        raise MissingExtra("dubio serve", "serve") from fault
    serve_model(
        model, policy=policy, refer_all=refer_all, force=force, log=log, keep_rows=keep_rows, address=address,
        port=port, token_file=token_file, allow_hosts=tuple(allow_host or ()), batching=batching,
        limits=Limits(max_body * MEBIBYTE, max_rows, max_requests), say=say,
    )  # fmt: skip
