#!/bin/bash
# Sizes that no program would take.
LAYERS=-24
torchrun --nproc-per-node 8 --nnodes 1 pretrain_gpt.py --num-layers $LAYERS --hidden-size 2.4e3 \
  --num-attention-heads 2000000000 --seq-length 2048 --max-position-embeddings 2048 --vocab-size 50304 --bf16 \
  --micro-batch-size 2 --global-batch-size 64
