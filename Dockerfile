# Any image with Python 3.11 or later and its venv module will do: --build-arg BASE_IMAGE=...
# A registry's credentials, index or certificate come by secrets (pip.conf, ca.crt), which no layer keeps.
ARG BASE_IMAGE=docker.io/library/python:3.13-slim

FROM ${BASE_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY requirements-build.lock requirements-run.lock ./
# Compiled here because the root file system is read-only at run time. Unchecked: sources in an image do not change.
# Two environments: of the tools that make the wheel, which stays here, and the one that is served, without pip. For the
# latter, only what is built already is taken: there is no compiler here either.
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf --mount=type=secret,id=ca.crt \
    --mount=type=cache,target=/root/.cache/pip \
    python3 -m venv /opt/tools \
 && python3 -m venv --without-pip /opt/gpuclass-catalog \
 && /opt/tools/bin/pip install --no-compile --require-hashes -r requirements-build.lock \
 && /opt/tools/bin/pip --python /opt/gpuclass-catalog/bin/python install --no-compile --only-binary=:all: \
        --require-hashes -r requirements-run.lock \
 && /opt/gpuclass-catalog/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/gpuclass-catalog/lib
COPY LICENSE README.md pyproject.toml ./
COPY apiserver ./apiserver
COPY openapi/v2.json openapi/v3.json ./openapi/
RUN /opt/tools/bin/pip wheel --no-deps --no-build-isolation --no-index --wheel-dir /wheel . \
 && /opt/tools/bin/pip --python /opt/gpuclass-catalog/bin/python install --no-compile --no-deps --no-index /wheel/*.whl \
 && /opt/gpuclass-catalog/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash \
        /opt/gpuclass-catalog/lib/python3*/site-packages/apiserver

FROM ${BASE_IMAGE}
# pip is of no use here, and a base may come without bytecode for the standard library.
RUN if python3 -c 'import pip' 2>/dev/null; then \
        python3 -m pip uninstall --yes --quiet --root-user-action=ignore --break-system-packages pip; \
    fi \
 && python3 -m compileall -q -j 0 -x '/(test|tests|idlelib|dist-packages|site-packages)/' \
        --invalidation-mode unchecked-hash "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"
COPY --from=build /opt/gpuclass-catalog /opt/gpuclass-catalog
# HOME, because a library looks for it, and the user has no entry in /etc/passwd.
ENV PATH=/opt/gpuclass-catalog/bin:$PATH \
    HOME=/ \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# `make image` adds the version, the revision and the base.
LABEL org.opencontainers.image.title="gpuclass-catalog" \
      org.opencontainers.image.description="Aggregated Kubernetes API server: which GPUs of each GPUClass are free now" \
      org.opencontainers.image.licenses="Apache-2.0"
USER 65532:65532
EXPOSE 6443
ENTRYPOINT ["gpuclass-catalog"]
CMD ["serve"]
