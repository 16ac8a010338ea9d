#!/bin/bash
# import: --define 1=4 --define 2=2
# Degrees are the script's arguments.
if [ $# -lt 2 ]; then
  echo "usage: $0 TP PP"
  exit 1
fi
TP=$1
PP=${2:-1}
torchrun --nproc-per-node 8 --nnodes 2 pretrain_gpt.py \
  --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 --max-position-embeddings 2048 \
  --vocab-size 50304 --bf16 \
  --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP --micro-batch-size 1 --global-batch-size 64
