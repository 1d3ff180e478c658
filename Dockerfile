# A server of one exported model, as a user without privileges. Build it in a folder that holds this repository's files
# and the exported model as `model/`, which carries its policy:
#
#   docker build -t dubio-serve .
#   docker run --rm -p 127.0.0.1:8000:8000 -v decisions:/decisions -e DUBIO_SERVE_TOKEN dubio-serve
#
# The log of decisions is on the volume /decisions. The container listens on all of its addresses, so a token is needed;
# --allow-host names what clients call the server.
FROM python:3.11-slim

RUN useradd --system --create-home --uid 10001 dubio && install -d -o dubio -g dubio /decisions
WORKDIR /app

COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY src ./src
RUN python -m pip install --no-cache-dir --disable-pip-version-check --constraint constraints.txt '.[train,serve]'

COPY model ./model

USER dubio
VOLUME /decisions
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
CMD ["dubio", "serve", "model", "--log", "/decisions", "--address", "0.0.0.0", "--port", "8000", "--allow-host", "localhost", "--allow-host", "127.0.0.1"]
