# One image for every command of Fairgate. Any base with Python 3.11 or newer and its venv module will do: `make image`.
ARG BASE=python:3.13.15-slim-trixie@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_COMPILE=1
WORKDIR /source
COPY .ci/requirements.txt .ci/requirements-build.txt ./
# Wheels only, each by its hash: nothing that a package brings is run while it is installed.
RUN python3 -m venv /tools \
 && /tools/bin/python -m pip install --only-binary :all: --require-hashes --requirement requirements-build.txt \
 && python3 -m venv --without-pip /opt/fairgate \
 && /tools/bin/python -m pip --python /opt/fairgate install \
      --only-binary :all: --require-hashes --requirement requirements.txt
COPY LICENSE README.md pyproject.toml ./
COPY certs certs
COPY policies/default policies/default
COPY webhook webhook
# Byte code that is never compared with its source starts fastest, and does not depend on when it was made.
RUN /tools/bin/python -m hatchling build --target wheel --directory wheels \
 && /tools/bin/python -m pip --python /opt/fairgate install --no-deps --no-index wheels/*.whl \
 && /opt/fairgate/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/fairgate/lib \
 && /tools/bin/cyclonedx-py environment --output-reproducible \
      --output-file /opt/fairgate/sbom.cdx.json /opt/fairgate/bin/python

FROM ${BASE}
ARG BASE
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title="fairgate" \
      org.opencontainers.image.description="A Kubernetes admission webhook that makes GPU sharing fair with the stock scheduler" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE}"
# The pip of the base: nothing is ever installed into a running container.
RUN rm -rf /usr/local/bin/pip* /usr/local/lib/python3.*/ensurepip /usr/local/lib/python3.*/site-packages/pip*
COPY --from=build /opt/fairgate /opt/fairgate
ENV PATH=/opt/fairgate/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# The root may be read-only: only `fairgate tryout`, and certificates in a folder, want a place to write.
WORKDIR /tmp
EXPOSE 8443
# A number, so that Kubernetes can tell that it is not root.
USER 65532:65532
ENTRYPOINT ["fairgate"]
CMD ["--help"]
