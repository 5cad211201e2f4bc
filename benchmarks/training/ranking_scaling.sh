#!/usr/bin/env bash
# usage: benchmarks/training/ranking_scaling.sh OUTPUT [SEQFUSE]
# benchmark_ranking.gin at one global batch of 32 on one GPU and on two, with sequences of full length and with zipf lengths,
# and an item table of 2 million rows. Prints seconds per step, measured between the second and the last logged step.
set -euo pipefail
output=${1:?usage: ranking_scaling.sh OUTPUT [SEQFUSE]} seqfuse=${2:-build/bin/seqfuse}
common=(train ranking --gin-config-file configs/benchmark_ranking.gin --device cuda
        --gin item/DynamicEmbeddingArgs.item_vocab_size_or_capacity=2_000_000 --gin TrainerArgs.profile=False
        --gin TrainerArgs.log_interval=4 --gin TrainerArgs.eval_interval=100000 --gin TrainerArgs.max_eval_iters=1
        --gin TrainerArgs.eval_batch_size=4 --gin BenchmarkDatasetArgs.num_generated_batches=4)
full=(--gin event/FeatureArgs.is_jagged=False --gin TrainerArgs.max_train_iters=16)
zipf=(--gin TrainerArgs.max_train_iters=48)

for lengths in full zipf; do
  declare -n arguments=$lengths
  for gpus in 1 2; do
    run=$output/${lengths}_$gpus
    launch=(); ((gpus == 1)) || launch=(torchrun --no-python --nproc_per_node "$gpus")
    "${launch[@]}" "$seqfuse" "${common[@]}" "${arguments[@]}" --gin TrainerArgs.train_batch_size=$((32 / gpus)) --output "$run"
    python3 - "$run" "$lengths, $gpus GPU" <<'PYTHON'
import json, sys
steps = [line for line in map(json.loads, open(sys.argv[1] + "/metrics.jsonl")) if "loss" in line][1:]
seconds = (steps[-1]["seconds"] - steps[0]["seconds"]) / (steps[-1]["step"] - steps[0]["step"])
print(f"{sys.argv[2]}: {seconds:.3f} s a step")
PYTHON
  done
done
