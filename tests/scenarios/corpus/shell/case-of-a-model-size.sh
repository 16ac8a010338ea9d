#!/bin/bash
# import: --define MODEL_SIZE=13B
# Sizes by a variable of the surroundings.
case ${MODEL_SIZE,,} in
  7b)  LAYERS=32; HIDDEN=4096; HEADS=32; FFN=11008; TP=1 ;;
  13b) LAYERS=40; HIDDEN=5120; HEADS=40; FFN=13824; TP=2 ;;
  70b|65b) LAYERS=80; HIDDEN=8192; HEADS=64; FFN=28672; TP=8 ;;
  *) echo "unknown size $MODEL_SIZE"; exit 1 ;;
esac
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --swiglu --untie-embeddings-and-output-weights \
  --num-layers $LAYERS --hidden-size $HIDDEN --num-attention-heads $HEADS --ffn-hidden-size $FFN \
  --seq-length 4096 --max-position-embeddings 4096 --vocab-size 32000 --bf16 \
  --tensor-model-parallel-size $TP --pipeline-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 128
