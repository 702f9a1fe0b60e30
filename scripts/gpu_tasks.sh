#!/usr/bin/env bash
# How the baselines of every task learn on CUDA: the records of docs/results.md, on one GPU or several, in parts.
#
#   scripts/gpu_tasks.sh OUT_DIR      call it again, until it says that all is done: it goes on where it stopped
#
# Each queue below is worked off on a GPU of its own (with fewer GPUs than queues, one queue after the other), within
# LIMIT seconds a call. A training that does not end in time is stopped and goes on with --resume in the next call: its
# state is in RUNS. OUT_DIR gets records.jsonl and gpu_tasks.log as they come, and at the end policies.tar.gz and, of what
# is unfinished, unfinished.tar.00, .01 ... (unpack it here with `cat OUT_DIR/unfinished.tar.* | tar -x`, where RUNS was
# lost). Append the records to docs/benchmarks.jsonl and write the pages with `python scripts/benchmark.py report`.
#
# Times are of training alone, all policies of a row side by side; compiling comes on top (1 to 1.5 minutes for the first
# row of a task on a fresh machine), and evaluations. So 880 s of training are what two calls of LIMIT hold. Franka's 580 s
# are the 1,900 iterations to which its curve rises. Sizes assume 1 to 2.5 M env-steps/s a GPU (docs/benchmarks.md).
set -u
cd "$(dirname "$0")/.."
out=${1:?usage: scripts/gpu_tasks.sh OUT_DIR}
LIMIT=${LIMIT:-555}                     # seconds of this call
RUNS=${RUNS:-runs/tasks}
SEEDS=${SEEDS:-5}
FRANKA=${FRANKA:-580} FRANKA_SEEDS=${FRANKA_SEEDS:-$SEEDS} FRANKA_ENVS=${FRANKA_ENVS:-4096}
ALLEGRO=${ALLEGRO:-880} ALLEGRO_SEEDS=${ALLEGRO_SEEDS:-2} ALLEGRO_ENVS=${ALLEGRO_ENVS:-16384}
FRANKA_UNSHAPED=${FRANKA_UNSHAPED:-500} ALLEGRO_BOTH=${ALLEGRO_BOTH:-500}
HUMANOID=${HUMANOID:-300} ANT=${ANT:-60} ANT_BOTH=${ANT_BOTH:-60} ANYMAL=${ANYMAL:-60}
CARTPOLE=${CARTPOLE:-10} CARTPOLE_BOTH=${CARTPOLE_BOTH:-2}
ENVS=${ENVS:-4096} CARTPOLE_ENVS=${CARTPOLE_ENVS:-512} PHYSICS_ENVS=${PHYSICS_ENVS:-"4096 32768"}
OPTIONS=${OPTIONS:-}                    # more for every measurement, e.g. --sim mujoco_cpu and key=value
QUEUES=(
  "${QUEUE0-franka_human tests}"
  "${QUEUE1-allegro_human round speed}"
  "${QUEUE2-humanoid_human franka_unshaped humanoid_unshaped physics_cpu}"
  "${QUEUE3-cartpole_human cartpole ant_human ant anymal physics_warp allegro}"
)
export PYTHONUNBUFFERED=1 PYTHONPATH=${PYTHONPATH:-}:$PWD
PYTHON=${PYTHON:-python3}
mkdir -p "$out" "$RUNS"

left() { echo $((LIMIT - SECONDS)); }
say() { echo "[$SECONDS s] $*"; }

# row NAME SECONDS COMMAND...: run a command that nothing goes on from, once, for so long at most
row() {
  local name=$1 most=$2
  shift 2
  if [ -e "$RUNS/$name.done" ]; then say "$name: done before"; return; fi
  if [ "$(left)" -lt 30 ]; then say "$name: skipped, $(left) s are left"; return; fi
  say "$name: $*"
  if timeout --kill-after=5 $(($(left) < most ? $(left) : most)) "$@"; then touch "$RUNS/$name.done"; fi
  say "$name: ended"
}

# learn NAME TASK SECONDS SEEDS ENVS CANDIDATES...: train, or go on with it
learn() {
  local name=$1 task=$2 seconds=$3 seeds=$4 envs=$5
  shift 5
  if [ -e "$RUNS/$name/complete" ]; then say "$name: done before"; return; fi
  if [ "$(left)" -lt 90 ]; then say "$name: put off, $(left) s are left"; return; fi
  local resume=()
  if [ -e "$RUNS/$name/state.pth" ]; then resume=(--resume); fi
  say "$name: begins ${resume[*]-}"
  # shellcheck disable=SC2086
  timeout --kill-after=5 "$(left)" "$PYTHON" scripts/benchmark.py learning --task "$task" --candidates "$@" \
    --seeds "$seeds" --envs "$envs" --seconds "$seconds" --points "$((seconds > 600 ? 24 : 14))" \
    --limit $(($(left) - 30)) --run "$RUNS/$name" --transfer --out "$out/records.jsonl" "${resume[@]}" $OPTIONS
  say "$name: ended ($?)"
}

franka_human() { learn franka_human FrankaCubeStack "$FRANKA" "$FRANKA_SEEDS" "$FRANKA_ENVS" human; }
franka_unshaped() { learn franka_unshaped FrankaCubeStack "$FRANKA_UNSHAPED" "$FRANKA_SEEDS" "$FRANKA_ENVS" unshaped; }
allegro_human() { learn allegro_human AllegroHand "$ALLEGRO" "$ALLEGRO_SEEDS" "$ALLEGRO_ENVS" human; }
allegro() { learn allegro AllegroHand "$ALLEGRO_BOTH" "$SEEDS" "$ENVS" human unshaped; }
humanoid_human() { learn humanoid_human Humanoid "$HUMANOID" "$SEEDS" "$ENVS" human; }
humanoid_unshaped() { learn humanoid_unshaped Humanoid "$HUMANOID" "$SEEDS" "$ENVS" unshaped; }
ant_human() { learn ant_human Ant "$ANT" "$SEEDS" "$ENVS" human; }
ant() { learn ant Ant "$ANT_BOTH" "$SEEDS" "$ENVS" human unshaped; }
anymal() { learn anymal Anymal "$ANYMAL" "$SEEDS" "$ENVS" human unshaped; }
cartpole_human() { learn cartpole_human Cartpole "$CARTPOLE" "$SEEDS" "$CARTPOLE_ENVS" human; }
cartpole() { learn cartpole Cartpole "$CARTPOLE_BOTH" "$SEEDS" "$CARTPOLE_ENVS" human unshaped; }
physics() { local name=$1; shift; row "$name" 240 "$PYTHON" scripts/benchmark.py physics "$@" --out "$out/records.jsonl"; }
# shellcheck disable=SC2086
physics_warp() { physics physics_warp --envs $PHYSICS_ENVS $OPTIONS; }
physics_cpu() { physics physics_cpu --envs 4096 --sim mujoco_cpu; }
# two rounds of a search, 16 candidates x 512 environments x 300 iterations beside both baselines, and their parts' times:
# the first one compiles
round() {
  row round 300 "$PYTHON" envcoder_bench/auto_shape.py --task Anymal --task_description "follow the commands" \
    --shaper_types compute_reward --llm evolve --num_iters 2 --shapers_per_iter 16 --num_envs_per_candidate 512 \
    --learning_iterations 300 --final_seeds 1
}
# a fitness of the user's in the graphs of evaluation
speed() {
  row speed 120 "$PYTHON" envcoder_bench/eval_shapers.py --task Anymal --fitness user_functions/fitness/anymal_speed.py \
    --num_envs_per_candidate 64 --learning_iterations 4 evaluation.points=2
}
tests() { row tests 300 "$PYTHON" -m pytest -p no:cacheprovider -q -m cuda tests; }

# worker GPU COUNT: the queues of one GPU
worker() {
  local index name
  for ((index = $1; index < ${#QUEUES[@]}; index += $2)); do
    for name in ${QUEUES[index]}; do "$name"; done
  done
}

count=$( (nvidia-smi -L 2>/dev/null || echo one) | wc -l)
count=$((count < ${#QUEUES[@]} ? count : ${#QUEUES[@]}))
for ((gpu = 0; gpu < count; gpu++)); do
  CUDA_VISIBLE_DEVICES=$gpu worker "$gpu" "$count" 2>&1 | sed -u "s/^/$gpu| /" | tee -a "$out/gpu_tasks.log" &
done
wait

finished() { [ -e "$RUNS/$1.done" ] || [ -e "$RUNS/$1/complete" ]; }

rm -f "$out"/unfinished.tar.*
find "$RUNS" -maxdepth 2 -name '*.pth' ! -name state.pth -print0 | tar --null -czf "$out/policies.tar.gz" --files-from -
missing=() begun=()
for name in ${QUEUES[*]}; do
  finished "$name" && continue
  missing+=("$name")
  if [ -e "$RUNS/$name/state.pth" ]; then begun+=("$RUNS/$name/state.pth"); fi
done
if [ "${#begun[@]}" -gt 0 ]; then tar -cf - "${begun[@]}" | split -b 15M -d - "$out/unfinished.tar."; fi
if [ "${#missing[@]}" -gt 0 ]; then echo "to do: ${missing[*]}; call it again"; else echo "all is done"; fi |
  tee -a "$out/gpu_tasks.log"
