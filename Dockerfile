# syntax=docker/dockerfile:1
# One image for shards, parsers and the commands around them: `docker run crawlproj status --run web`.

FROM python:3.11-slim-bookworm AS packages
COPY requirements.txt .
# Into an environment without pip, and only wheels.
RUN python -m venv --without-pip /venv \
 && pip --python /venv/bin/python install --no-cache-dir --disable-pip-version-check \
      --require-hashes --only-binary=:all: --requirement requirements.txt

# What reads HTML; the same Debian as below, with a compiler.
FROM python:3.11-bookworm AS reader
WORKDIR /build
COPY setup.py pyproject.toml ./
COPY crawlproj/parsing/reader crawlproj/parsing/reader
RUN python setup.py build_ext --build-lib . && test -f crawlproj/parsing/_reader.abi3.so

FROM python:3.11-slim-bookworm
# A number, not a name: Kubernetes' runAsNonRoot checks it. A new volume on /data gets the owner given here.
RUN useradd --system --uid 10001 --user-group --no-create-home crawl \
 && install --directory --owner=crawl --group=crawl /data
COPY --from=packages /venv /venv
WORKDIR /srv/crawlproj
COPY scrapy.cfg ./
COPY profiles profiles
COPY crawlproj crawlproj
COPY --from=reader /build/crawlproj/parsing/_reader.abi3.so crawlproj/parsing/
COPY deploy/health.py deploy/
# Beforehand: the root of a container is read-only.
RUN python -m compileall -q crawlproj
ENV PATH=/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    CRAWL_DATA=/data
USER 10001:10001
VOLUME /data
ENTRYPOINT ["scrapy"]
