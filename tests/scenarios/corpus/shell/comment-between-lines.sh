#!/bin/bash
# A comment ends the command above it, as in bash: what follows is none of its flags.
torchrun --nproc-per-node 8 --nnodes 1 pretrain_gpt.py \
  --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 \
  --vocab-size 50304 --bf16 \
  --micro-batch-size 2 --global-batch-size 64 \
  # --recompute-activations \
  --sequence-parallel
