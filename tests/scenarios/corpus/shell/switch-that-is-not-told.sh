#!/bin/bash
# Whether the optimizer is distributed depends on the surroundings: it is asked for.
OPTS="--bf16"
if [ "$ZERO" = 1 ]; then
  OPTS="$OPTS --use-distributed-optimizer"
fi
if [ "$USE_WANDB" = 1 ]; then
  OPTS="$OPTS --wandb-project test"
fi
torchrun --nproc-per-node 8 --nnodes 1 pretrain_gpt.py $OPTS --num-layers 24 --hidden-size 2048 --num-attention-heads 16 \
  --seq-length 2048 --max-position-embeddings 2048 --vocab-size 50304 --micro-batch-size 1 --global-batch-size 8
