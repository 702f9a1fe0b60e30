# EnvCoderBench with all that videos need. For CPUs:
#   docker build -t envcoder-bench .
#   docker run --rm -v "$PWD:/work" -u "$(id -u):$(id -g)" envcoder-bench eval-shapers --task Cartpole
# For NVIDIA GPUs, with the NVIDIA Container Toolkit on the host:
#   docker build -t envcoder-bench:cuda --build-arg DEVICE=cuda .
#   docker run --rm --gpus all -v "$PWD:/work" -u "$(id -u):$(id -g)" envcoder-bench:cuda eval-shapers --task Anymal
ARG DEVICE=cpu

FROM python:3.12-slim-bookworm AS base
# OpenGL for videos; a compiler, which Triton calls
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ libegl1 libgl1-mesa-dri \
    && rm -rf /var/lib/apt/lists/*
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

# torch for CPUs has a tenth of the size
FROM base AS torch-cpu
ARG TORCH=2.13.0
RUN pip install --no-cache-dir "torch==${TORCH}" --index-url https://download.pytorch.org/whl/cpu

# torch of the package index brings CUDA; the driver is the host's
FROM base AS torch-cuda
ARG TORCH=2.13.0
RUN pip install --no-cache-dir "torch==${TORCH}"
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,graphics,utility

# hadolint ignore=DL3006
FROM torch-${DEVICE}
WORKDIR /opt/envcoder_bench
COPY requirements-build.txt requirements.txt ./
# what builds packages is locked, too
RUN pip install --no-cache-dir --no-deps --require-hashes -r requirements-build.txt \
    && pip install --no-cache-dir --no-deps --no-build-isolation --require-hashes -r requirements.txt
COPY pyproject.toml README.md LICENSE ./
COPY packages/mujoco_batches ./packages/mujoco_batches
COPY packages/isaacgym_mujoco ./packages/isaacgym_mujoco
COPY envcoder_bench ./envcoder_bench
COPY cfg ./cfg
COPY user_functions ./user_functions
RUN pip install --no-cache-dir --no-deps --no-build-isolation ./packages/mujoco_batches ./packages/isaacgym_mujoco . && eval-shapers --version
# folders that any user of -u may write
ENV HOME=/tmp/home
RUN mkdir -m 777 /tmp/home /work
USER 65534
WORKDIR /work
CMD ["eval-shapers", "--help"]
