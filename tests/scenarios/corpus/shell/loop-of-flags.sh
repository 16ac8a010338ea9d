#!/bin/bash
# Flags from a loop, and from words of a list.
ARGS=()
for flag in swiglu untie-embeddings-and-output-weights bf16; do
  ARGS+=("--$flag")
done
read -r LAYERS HIDDEN HEADS <<< "32 4096 32"
for ((i = 0, TP = 1; i < 2; i++)); do TP=$((TP * 2)); done
torchrun --nproc-per-node 8 --nnodes 2 pretrain_gpt.py "${ARGS[@]}" --num-layers $LAYERS --hidden-size $HIDDEN \
  --num-attention-heads $HEADS --ffn-hidden-size 11008 --seq-length 4096 --max-position-embeddings 4096 --vocab-size 32000 \
  --tensor-model-parallel-size $TP --micro-batch-size 1 --global-batch-size 64
