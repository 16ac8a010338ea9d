#!/bin/bash
# A switch has no value and --micro-batch-size has its one: what stands behind them may be any flags.
PARALLEL=$(python3 choose.py --gpus 16)
torchrun --nproc-per-node 8 --nnodes 2 $SCRIPT_DIR/pretrain_gpt.py --num-layers 32 --hidden-size 4096 \
  --num-attention-heads 32 --seq-length 8192 --max-position-embeddings 8192 --vocab-size 128256 \
  --bf16 $PARALLEL --global-batch-size 128 $(cat moe.txt) --sequence-parallel $(cat more.txt) \
  --micro-batch-size 1 $MOE_DIR --log-interval 1
