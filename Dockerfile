# Any Python image of 3.11 or later with pip and a shell will do: --build-arg BASE=...
ARG BASE=python:3.13-slim

# The wheel is built with the tools of the lock file, each checked by its hash; only the wheel leaves this stage.
FROM ${BASE} AS wheel
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY requirements.lock ./
RUN python -m pip install --require-hashes -r requirements.lock
COPY LICENSE README.md pyproject.toml ./
COPY apiserver ./apiserver
COPY openapi/v2.json openapi/v3.json ./openapi/
RUN python -m pip wheel --no-deps --no-build-isolation --wheel-dir /wheel .

# A virtual environment with the run-time dependencies and the wheel, and without pip.
FROM ${BASE} AS environment
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
RUN python -m venv --without-pip /opt/gpuclass-catalog
COPY requirements-run.lock ./
RUN python -m pip --python /opt/gpuclass-catalog/bin/python install --no-compile --require-hashes -r requirements-run.lock
COPY --from=wheel /wheel /wheel
RUN python -m pip --python /opt/gpuclass-catalog/bin/python install --no-compile --no-deps --no-index /wheel/*.whl
# Compiled here because the root file system is read-only at run time. Unchecked: sources in an image do not change.
RUN /opt/gpuclass-catalog/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/gpuclass-catalog/lib

FROM ${BASE}
# pip is of no use here, and the base image comes without bytecode for the standard library.
RUN python -m pip uninstall --yes --quiet --root-user-action=ignore --disable-pip-version-check pip \
 && python -m compileall -q -x '/tests?/' --invalidation-mode unchecked-hash "$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"
COPY --from=environment /opt/gpuclass-catalog /opt/gpuclass-catalog
ENV PATH=/opt/gpuclass-catalog/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 6443
ENTRYPOINT ["gpuclass-catalog"]
CMD ["serve"]
