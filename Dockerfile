# One image for all processes: `docker run … pulsekeeper web`, `worker`, `interactive`, `dispatcher`, `beat`, or a
# command such as `python manage.py migrate`. The root file system may be read-only, except /tmp. Health checks are in
# docker-compose.yml and deploy/helm: the OCI image format has none.
# By digest, because a tag may be pushed again with other content. docs/operate/upgrade.md says how to renew it.
ARG PYTHON=python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b

FROM ${PYTHON} AS packages
RUN apt-get update && apt-get install --yes --no-install-recommends binutils
COPY requirements/production.txt /build/
# Wheels only, each with its hash: no code runs during the installation.
RUN python -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir --no-compile --require-hashes --only-binary=:all: \
        -r /build/production.txt \
    && /opt/venv/bin/pip uninstall --yes pip setuptools
# 90 MB that nothing uses: translations (USE_I18N is off), names and formats of babel's locales, tests of a package, source
# maps, and symbols of libraries.
RUN find /opt/venv -path '*/LC_MESSAGES/*' -delete -o -name '*.map' -delete \
        -o -path '*/babel/locale-data/*.dat' -delete -o -path '*/icalendar/tests/*' -type f -delete \
    && strip --strip-unneeded /opt/venv/lib/python3.*/site-packages/uvloop/*.so \
        /opt/venv/lib/python3.*/site-packages/yaml/*.so \
        /opt/venv/lib/python3.*/site-packages/PIL/*.so \
        /opt/venv/lib/python3.*/site-packages/rpds/*.so \
        /opt/venv/lib/python3.*/site-packages/cryptography/hazmat/bindings/*.so

FROM ${PYTHON} AS agent-packages
COPY requirements/agent.txt /build/
RUN python -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir --no-compile --require-hashes --only-binary=:all: -r /build/agent.txt \
    && /opt/venv/bin/pip uninstall --yes pip setuptools

# `--target agent`: the agent of a location (docs/operate/agents.md), without the server and its packages.
FROM ${PYTHON} AS agent
LABEL org.opencontainers.image.title="Pulsekeeper agent" \
    org.opencontainers.image.version="1.0.0" \
    org.opencontainers.image.licenses="MIT"
RUN groupadd --gid 10001 pulsekeeper \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin pulsekeeper \
    && install --directory --mode 700 --owner 10001 --group 10001 /var/lib/pulsekeeper
COPY --from=agent-packages /opt/venv /opt/venv
WORKDIR /srv/pulsekeeper
COPY pyproject.toml ./
COPY checks checks
COPY core core
COPY pulsekeeper pulsekeeper
RUN ["/opt/venv/bin/python", "-m", "compileall", "-q", "."]
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PULSEKEEPER_STATE=/var/lib/pulsekeeper/agent.json
USER 10001:10001
ENTRYPOINT ["python", "-m", "pulsekeeper", "agent"]

FROM ${PYTHON}
LABEL org.opencontainers.image.title="Pulsekeeper" \
    org.opencontainers.image.version="1.0.0" \
    org.opencontainers.image.licenses="MIT"
RUN groupadd --gid 10001 pulsekeeper \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin pulsekeeper
COPY --from=packages /opt/venv /opt/venv
COPY . /srv/pulsekeeper
WORKDIR /srv/pulsekeeper
# Compile what the processes import, because the user that runs them cannot write there. The rest stays as source.
RUN ["/opt/venv/bin/python", "-m", "compileall", "-q", "."]
RUN SECRET_KEY=build /opt/venv/bin/python -c "import celery.bin.celery, granian.cli, config.rsgi; \
    from config.celery import app; app.loader.import_default_modules()"
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    DJANGO_SETTINGS_MODULE=config.settings \
    GRANIAN_HOST=0.0.0.0 \
    PORT=8000 \
    DATA_DIR=/tmp
USER 10001:10001
EXPOSE 8000
ENTRYPOINT ["/srv/pulsekeeper/deploy/process"]
CMD ["web"]
