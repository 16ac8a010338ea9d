#!/bin/bash
# Flags that depend on degrees, as scripts in the wild decide them.
TP=4
PP=4
VP=2
PARALLEL=(--tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP)
if (( TP > 1 )); then
  PARALLEL+=(--sequence-parallel)
fi
if [[ $PP -gt 1 && $VP -gt 1 ]]; then
  PARALLEL+=(--num-virtual-stages-per-pipeline-rank "$VP")
fi
[ "$TP" -eq 1 ] && PARALLEL+=(--use-distributed-optimizer)
torchrun --nproc-per-node 8 --nnodes 4 pretrain_gpt.py "${PARALLEL[@]}" \
  --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 \
  --vocab-size 50304 --bf16 \
  --micro-batch-size 1 --global-batch-size 64
