#!/bin/bash
# Sizes come from the function that is called.
small() { LAYERS=12; HIDDEN=768; HEADS=12; }
large() { local scale=$1; LAYERS=$((scale * 12)); HIDDEN=$((scale * 1024)); HEADS=$((scale * 8)); }
log() { echo "--num-layers 96: $*"; }
large 2
log starting
launch() {
  torchrun --nproc-per-node 8 --nnodes 1 "$@" --num-layers $LAYERS --hidden-size $HIDDEN --num-attention-heads $HEADS \
    --seq-length 2048 --max-position-embeddings 2048 --vocab-size 50304 --bf16
}
launch pretrain_gpt.py --micro-batch-size 2 --global-batch-size 32 --pipeline-model-parallel-size 2
