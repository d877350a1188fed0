# One image for shards, parsers and the commands around them: `docker run crawlproj status --run web`.
# It needs BuildKit, and no registry but that of its base images; deploy/base-images makes those of Debian's packages.

FROM python:3.11-slim-bookworm AS packages
COPY requirements.txt .
# An environment without pip, from wheels only. An index of yours: --secret id=pip,src=YOUR-PIP.CONF; it stays out of
# the image.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    python -m venv --without-pip /venv \
 && pip --python /venv/bin/python install --no-cache-dir --disable-pip-version-check \
      --require-hashes --only-binary=:all: --requirement requirements.txt

# The HTML reader; the same Debian as below, with a compiler.
FROM python:3.11-bookworm AS reader
WORKDIR /build
COPY setup.py ./
COPY crawlproj/parsing/reader crawlproj/parsing/reader
RUN python setup.py build_ext --build-lib . && test -f crawlproj/parsing/_reader.abi3.so

FROM python:3.11-slim-bookworm
# A numeric user, for Kubernetes' runAsNonRoot. A new volume on /data gets this owner.
RUN useradd --system --uid 10001 --user-group --no-create-home crawl \
 && install --directory --owner=crawl --group=crawl /data
COPY --from=packages /venv /venv
WORKDIR /srv/crawlproj
COPY scrapy.cfg ./
COPY crawlproj crawlproj
COPY --from=reader /build/crawlproj/parsing/_reader.abi3.so crawlproj/parsing/
COPY deploy/health.py deploy/
COPY deploy/once.sh deploy/
# Compiled here, since the root of a container is read-only.
RUN python -m compileall -q crawlproj
ENV PATH=/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    CRAWL_DATA=/data
USER 10001:10001
VOLUME /data
ENTRYPOINT ["scrapy"]
