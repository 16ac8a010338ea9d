#!/bin/bash
torchrun --nnodes 2 --nproc_per_node 8 pretrain_gpt.py \
    --swiglu --normalization rmsnorm --num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 \
    --num-attention-heads 64 --num-key-value-heads 8 --seq-length 4096 --disable-bias-linear \
    --use-rotary-position-embeddings --untie-embeddings-and-output-weights \
    --tokenizer-type GPTSentencePieceTokenizer --tokenizer-model /models/Llama-2-70b-hf/tokenizer.model \
    --tensor-model-parallel-size 8 --pipeline-model-parallel-size 2 \
    --micro-batch-size 1 --global-batch-size 16 --bf16 --deepspeed --zero-stage 0
