#!/bin/bash
# What is not told here changes nothing that is predicted.
OPTS=""
if [ "$USE_WANDB" = 1 ]; then
  OPTS="$OPTS --wandb-project test"
fi
[ -d "$CHECKPOINT" ] && OPTS="$OPTS --load $CHECKPOINT"
torchrun --nproc-per-node 8 --nnodes 1 pretrain_gpt.py $OPTS --save $CHECKPOINT \
  --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 \
  --vocab-size 50304 --bf16 \
  --micro-batch-size 1 --global-batch-size 8
