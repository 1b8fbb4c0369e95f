# One image for all processes: `docker run … pulsekeeper web`, `worker`, `interactive`, `dispatcher`, `beat`, or a
# command such as `python manage.py migrate`. The root file system may be read-only, except /tmp.
ARG PYTHON=python:3.11-slim-bookworm

FROM ${PYTHON} AS packages
COPY requirements/production.txt /build/
# Wheels only, each with its hash: nothing is compiled, and no code runs during the installation.
RUN python -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir --require-hashes --only-binary=:all: -r /build/production.txt \
    && /opt/venv/bin/pip uninstall --yes pip setuptools

FROM ${PYTHON}
RUN groupadd --system --gid 10001 pulsekeeper \
    && useradd --system --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin pulsekeeper
COPY --from=packages /opt/venv /opt/venv
COPY . /srv/pulsekeeper
WORKDIR /srv/pulsekeeper
# Compile now, because the user that runs it cannot write there.
RUN ["/opt/venv/bin/python", "-m", "compileall", "-q", "."]
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    DJANGO_SETTINGS_MODULE=config.settings \
    GRANIAN_HOST=0.0.0.0 \
    PORT=8000 \
    DATA_DIR=/tmp
USER 10001:10001
EXPOSE 8000
# For the web process; docker-compose.yml has the checks of the others.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["/srv/pulsekeeper/deploy/healthy", "web"]
ENTRYPOINT ["/srv/pulsekeeper/deploy/process"]
CMD ["web"]
