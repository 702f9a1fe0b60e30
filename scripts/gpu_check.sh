#!/usr/bin/env bash
# What a CUDA machine must show: the CUDA tests, then the benchmarks of docs/benchmarks.md. Results go to the folder $1.
set -u
out=${1:?usage: scripts/gpu_check.sh OUT_DIR}
export PYTHONUNBUFFERED=1 PYTHONPATH=${PYTHONPATH:-}:$PWD
run() { echo; echo "\$ $*"; local began=$SECONDS; "$@" 2>&1; echo "(exit $?, $((SECONDS - began)) s)"; }
{
  run python3 -m pytest -p no:cacheprovider -m cuda tests
  run python3 scripts/benchmark.py training --candidates 4 --envs 256 --iterations 5
  run python3 scripts/benchmark.py training --candidates 250 --envs 256 --iterations 5
  run python3 scripts/benchmark.py human --envs 4096 --seconds 60
} | tee "$out/gpu_check.log"
