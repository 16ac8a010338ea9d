#!/bin/bash
# ZeRO-2 with the optimizer on the host, no pipeline.
deepspeed --num_nodes 1 --num_gpus 8 pretrain_gpt.py --no-pipeline-parallel \
    --tensor-model-parallel-size 1 --num-layers 24 --hidden-size 2048 --num-attention-heads 16 \
    --seq-length 2048 --micro-batch-size 4 --global-batch-size 256 \
    --tokenizer-type GPT2BPETokenizer --vocab-file gpt2-vocab.json --use-flash-attn-v2 \
    --deepspeed --deepspeed_config ds_zero2.json --zero-stage 2
