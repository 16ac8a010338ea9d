#!/bin/bash
# DeepSpeed's launcher, with flags kept in strings.
ZERO_STAGE=1
ds_args=""
ds_args=" --deepspeed ${ds_args}"
ds_args=" --zero-stage=$ZERO_STAGE ${ds_args}"
deepspeed --num_nodes 2 --num_gpus 8 pretrain_gpt.py \
  --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 --max-position-embeddings 2048 \
  --vocab-size 50304 --fp16 \
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --micro-batch-size 2 --global-batch-size 128 $ds_args
