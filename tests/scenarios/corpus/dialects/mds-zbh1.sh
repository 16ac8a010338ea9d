#!/bin/bash
deepspeed --num_gpus 8 pretrain_gpt.py --enable-zbh1-pipeline \
    --tensor-model-parallel-size 1 --pipeline-model-parallel-size 8 \
    --num-layers 32 --hidden-size 2560 --num-attention-heads 32 --seq-length 1024 \
    --micro-batch-size 2 --global-batch-size 128 --bf16 --vocab-size 50257 --deepspeed --zero-stage 0
