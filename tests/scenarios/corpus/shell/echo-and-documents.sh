#!/bin/bash
# Flags that are printed, written or described are none of the launch.
echo "run with --num-layers 96 --recompute-activations"
cat > notes.txt <<EOF
torchrun pretrain_gpt.py --num-layers 48 --tensor-model-parallel-size 8
EOF
: --sequence-parallel
torchrun --nproc-per-node 8 --nnodes 1 pretrain_gpt.py \
  --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 \
  --vocab-size 50304 --bf16 \
  --micro-batch-size 4 --global-batch-size 64 2>&1 | tee --append log.txt
