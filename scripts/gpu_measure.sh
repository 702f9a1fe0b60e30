#!/usr/bin/env bash
# Run all CUDA measurements of docs/benchmarks.md and docs/results.md, one after the other.
#
#   scripts/gpu_measure.sh OUT_DIR [speed|run|tasks|tests]...     default: speed run tasks
#
# A failed measurement does not stop the others. OUT_DIR gets gpu_measure.log, records.jsonl and the policies. Append the records to docs/benchmarks.jsonl and write the pages with `python scripts/benchmark.py report`.
set -u
cd "$(dirname "$0")/.."
out=${1:?usage: scripts/gpu_measure.sh OUT_DIR [speed|run|tasks|tests]...}
shift
[ $# -gt 0 ] || set -- speed run tasks
export PYTHONUNBUFFERED=1 PYTHONPATH=${PYTHONPATH:-}:$PWD
mkdir -p "$out"

row() { echo; echo "\$ $*"; "$@" 2>&1; echo "(exit $?)"; }
bench() { row "${PYTHON:-python3}" scripts/benchmark.py "$@" --out "$out/records.jsonl"; }
# learn NAME TASK SECONDS POINTS SEEDS ENVS CANDIDATES...
learn() {
  local name=$1 task=$2 seconds=$3 points=$4 seeds=$5 envs=$6
  shift 6
  bench learning --task "$task" --candidates "$@" --seeds "$seeds" --envs "$envs" --seconds "$seconds" \
    --points "$points" --run "$out/$name" --transfer
}

speed() {
  for count in 1 4 16 64 250 1000; do bench scaling --candidates $count --envs 256; done
  for count in 4 250; do bench scaling --candidates $count --envs 256 --dispatch; done
  bench scaling --candidates 1 --envs 4096
  for count in 1 8; do bench processes --processes $count --envs 256; done
  bench learner --candidates 250 --envs 256
  for count in 250 1000; do bench startup --candidates $count --envs 256; done
}
run() { bench run --candidates 250 --envs 256 --iterations 300; }
tests() { row "${PYTHON:-python3}" -m pytest -p no:cacheprovider -m cuda tests; }
tasks() {
  learn cartpole_human Cartpole 10 14 5 512 human
  learn cartpole Cartpole 2 14 5 512 human unshaped
  learn ant_human Ant 60 14 5 4096 human
  learn ant Ant 60 14 5 4096 human unshaped
  learn anymal Anymal 90 14 5 4096 human unshaped
  learn humanoid_human Humanoid 300 14 5 4096 human
  learn humanoid_unshaped Humanoid 300 14 5 4096 unshaped
  learn franka_human FrankaCubeStack 1080 24 5 4096 human
  learn franka_unshaped FrankaCubeStack 500 14 5 4096 unshaped
  learn allegro AllegroHand 500 14 5 4096 human unshaped
  learn allegro_human AllegroHand 1080 24 2 16384 human
  bench physics --envs 4096 32768
  bench physics --envs 4096 --sim mujoco_cpu
}

for part in "$@"; do
  case $part in
    speed | run | tasks | tests) "$part" ;;
    *) echo "unknown part $part: speed, run, tasks or tests" ;;
  esac
done 2>&1 | tee -a "$out/gpu_measure.log"
