#!/bin/bash
# What decides memory is in a file that is not here.
deepspeed --num_gpus 8 pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16 \
    --seq-length 2048 --bf16 --tokenizer-type HFTokenizer --tokenizer-model acme/own \
    --deepspeed --deepspeed_config /elsewhere/ds.json
