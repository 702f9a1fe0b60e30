#!/usr/bin/env bash
# What a CUDA machine must show: every number of docs/benchmarks.md, most important first, within LIMIT seconds.
#
#   scripts/gpu_check.sh OUT_DIR [all|rows|run|tests|human]...     default: all, which is rows and then the whole run
#
# A row that fails or outlasts its time loses no other. OUT_DIR gets gpu_check.log and records.jsonl, written as they
# come; copy the records into docs/benchmarks.jsonl and write the page with `python scripts/benchmark.py report`.
set -u
cd "$(dirname "$0")/.."
out=${1:?usage: scripts/gpu_check.sh OUT_DIR [all|rows|run|tests|human]...}
shift
[ $# -gt 0 ] || set -- all
LIMIT=${LIMIT:-540}
export PYTHONUNBUFFERED=1 PYTHONPATH=${PYTHONPATH:-}:$PWD

# row SECONDS COMMAND...: run a command, for so long at most and not beyond LIMIT
row() {
  local left=$((LIMIT - SECONDS)) most=$1
  shift
  echo; echo "[$SECONDS s] \$ $*"
  if [ "$left" -lt 15 ]; then echo "(skipped: $left of $LIMIT s are left)"; return; fi
  timeout --kill-after=5 "$((most < left ? most : left))" "$@" 2>&1
  echo "(exit $?, now $SECONDS s)"
}
bench() { local most=$1; shift; row "$most" python3 scripts/benchmark.py "$@" --out "$out/records.jsonl"; }

rows() {
  bench 150 scaling --candidates 250 --envs 256 --dispatch
  bench 60 scaling --candidates 4 --envs 256 --dispatch
  bench 60 scaling --candidates 1 --envs 4096
  bench 200 scaling --candidates 1000 --envs 256
  bench 90 processes --processes 8 --envs 256
  bench 90 learner --candidates 250 --envs 256
  bench 60 processes --processes 1 --envs 256
  bench 60 startup --candidates 250 --envs 256
  bench 60 scaling --candidates 1 --envs 256
  bench 60 scaling --candidates 16 --envs 256
  bench 60 scaling --candidates 64 --envs 256
  bench 150 startup --candidates 1000 --envs 256
}
run() {
  if [ $((LIMIT - SECONDS)) -lt 280 ]; then
    echo; echo "[$SECONDS s] the whole run does not fit any more: scripts/gpu_check.sh $out run"
  else
    bench "$LIMIT" run --candidates 250 --envs 256 --iterations 300
  fi
}
tests() { row 300 python3 -m pytest -p no:cacheprovider -m cuda tests; }
human() { bench 150 human --envs 4096 --seconds 60; }

for part in "$@"; do
  case $part in
    all) rows; run ;;
    rows | run | tests | human) "$part" ;;
    *) echo "unknown part $part: all, rows, run, tests or human" ;;
  esac
done 2>&1 | tee -a "$out/gpu_check.log"
