#!/bin/bash
# Megatron-DeepSpeed: the script and DeepSpeed's configuration say a stage of ZeRO, a type and a batch each.
deepspeed --num_nodes 1 --num_gpus 8 pretrain_gpt.py --no-pipeline-parallel \
    --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --vocab-size 50257 \
    --micro-batch-size 4 --global-batch-size 512 --fp16 \
    --deepspeed --zero-stage 1 --deepspeed_config ds_contradicts.json
