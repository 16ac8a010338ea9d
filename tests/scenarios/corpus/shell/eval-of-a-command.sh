#!/bin/bash
# The command is put together as text, shown, and run by eval.
options=" \
  --tensor-model-parallel-size 2 \
  --pipeline-model-parallel-size 4 \
  --num-layers 40 --hidden-size 5120 --num-attention-heads 40 \
  --seq-length 2048 --max-position-embeddings 2048 --vocab-size 50304 \
  --micro-batch-size 2 --global-batch-size 512 --fp16"
run_cmd="torchrun --nnodes 4 --nproc-per-node 8 pretrain_gpt.py $options"
echo ${run_cmd}
eval ${run_cmd}
set +x
