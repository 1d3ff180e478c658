"""Start a server and run it until it is told to stop."""

from __future__ import annotations

import hashlib
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dubio import __version__
from dubio.core.errors import MissingExtra, UserError
from dubio.core.validate import read_json
from dubio.referral.policy import Policy
from dubio.referral.shift import unnamed_model
from dubio.serving.decider import Classifier, Decider
from dubio.serving.guard import Guard, allowed_hosts, is_loopback, read_token
from dubio.serving.pipeline import Pipeline
from dubio.serving.register import KeepRows, Register, now

if TYPE_CHECKING:
    from dubio.serving.web import Limits, Service

SWITCH_SECONDS = 2e-4
"""Time after which a thread of the server gives way to another that waits."""

STOPPING_SECONDS = 30
"""Time for requests under way when the server is told to stop."""


def serve(
    model: Classifier | str | Path | None = None,
    *,
    policy: Policy | str | Path | None = None,
    refer_all: bool = False,
    force: bool = False,
    log: str | Path = "dubio-decisions",
    keep_rows: KeepRows = "referred",
    address: str = "127.0.0.1",
    port: int = 8000,
    token_file: str | Path | None = None,
    allow_hosts: tuple[str, ...] = (),
    batching: bool = True,
    limits: Limits | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Answer requests until the process is told to stop (SIGINT, SIGTERM); then finish those under way and return.

    Args:
        model: The model that predicts rows, or the folder of an exported one; None where clients send probabilities.
        policy: The referral policy, or its file; that of the model if omitted.
        refer_all: Refer every row, without a policy.
        force: Accept a policy that was fitted for another model.
        log: The folder of the log; a server that is started again goes on with it.
        keep_rows: Whether the content of referred rows is kept for the queue, beside the log.
        address: The address to listen on; any but a loopback address needs a token.
        port: The port; 0 takes a free one.
        token_file: The file of the token; else ``DUBIO_SERVE_TOKEN``.
        allow_hosts: Further names by which clients call the server.
        batching: Predict rows of concurrent requests together.
        limits: The bounds on requests.
        say: Takes messages.

    Raises:
        UserError: For options that do not fit, a policy that is not of this model, a folder or port in use.
        CorruptFile: When the log is damaged.
    """
    try:
        from dubio.serving.web import Limits, Service, health_of
    except ImportError as fault:
        raise MissingExtra("dubio serve", "serve") from fault
    classifier = _loaded(model) if isinstance(model, str | Path) else model
    decider = Decider(classifier, _policy(classifier, policy, refer_all), force)
    token = read_token(None if token_file is None else Path(token_file))
    if token is None and not is_loopback(address):
        raise UserError(f"--address {address} can be reached from other machines: set a token with --token-file or the "
                        "variable DUBIO_SERVE_TOKEN.")  # fmt: skip
    guard = Guard(allowed_hosts(address, allow_hosts), token)
    digest = None if decider.policy is None else hashlib.sha256(decider.policy.to_json().encode()).hexdigest()
    with _listening(address, port) as listener, _registered(Path(log), keep_rows, say) as register:
        service = Service(decider, register, limits or Limits(), health_of(decider, digest))
        identity = None if classifier is None else classifier.identity
        if decider.policy is not None and (doubt := unnamed_model(decider.policy, identity)):
            say(f"note: {doubt}")
        start = {"entry": "start", "at": now(), "version": __version__, "model": identity, "policy": digest}
        register.write([start])
        _run(service, guard, listener, batching, say)
        register.write([{"entry": "stop", "at": now()}])


def _loaded(path: str | Path) -> Classifier:
    try:
        from dubio.deployment.folder import load
    except ImportError as fault:
        raise MissingExtra("a model", "train") from fault
    return load(path)


def _policy(model: Classifier | None, policy: Policy | str | Path | None, refer_all: bool) -> Policy | None:
    """Return the policy that decides: the one given, or the model's own; None where every row is referred."""
    if refer_all:
        if policy is not None:
            raise UserError("give a policy (--policy), or refer every row (--refer-all); not both.")
        return None
    chosen = read_json(Policy, Path(policy)) if isinstance(policy, str | Path) else policy
    if chosen is None and model is not None:
        chosen = model.policy
    if chosen is None:
        lacking = "a server without a model has no policy" if model is None else "the model has no policy of its own"
        raise UserError(f"{lacking}: give one (--policy), or refer every row (--refer-all).")
    return chosen


@contextmanager
def _listening(address: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        listener = socket.create_server((address, port), family=family, backlog=1024)
    except OSError as fault:
        reason = fault.strerror or str(fault)
        raise UserError(f"--address {address} --port {port} cannot be listened on: {reason}.") from fault
    with listener:
        # Connections inherit it; asyncio sets it for sockets with an explicit protocol alone. Without it every answer
        # waits for the client's delayed acknowledgement, 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield listener


@contextmanager
def _registered(folder: Path, keep_rows: KeepRows, say: Callable[[str], None]) -> Iterator[Register]:
    register = Register(folder, keep_rows=keep_rows)
    try:
        for note in register.notes:
            say(f"note: {note}")
        yield register
    finally:
        register.close()


def _run(
    service: Service, guard: Guard, listener: socket.socket, batching: bool, say: Callable[[str], None]
) -> None:
    import uvicorn

    from dubio.serving.web import BoundedHttp, make_app

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        rows = service.limits.rows if batching else 1
        service.pipeline = Pipeline(service.decider, service.register, service.measured, batch_rows=rows)
        yield
        await service.pipeline.close()

    class Server(uvicorn.Server):
        """A server that is ready when it says so, and whose process ends with code 0 when it is told to stop."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            host, port = listener.getsockname()[:2]
            say(f"dubio serve: http://{f'[{host}]' if ':' in host else host}:{port}/")

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            # uvicorn's own raises the signal again once everything is finished.
            previous = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
            try:
                yield
            finally:
                for number, handler in previous.items():
                    signal.signal(number, handler)

    config = uvicorn.Config(
        make_app(service, guard, lifespan), http=BoundedHttp, ws="none", loop="asyncio", lifespan="on",
        access_log=False, log_config=None, server_header=False, date_header=True,
        timeout_graceful_shutdown=STOPPING_SECONDS, timeout_keep_alive=15, limit_concurrency=None, proxy_headers=False,
    )  # fmt: skip
    # The thread that predicts gives up the interpreter at every operation of torch, and would wait 5 ms for its return.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        Server(config).run(sockets=[listener])
    finally:
        sys.setswitchinterval(interval)
