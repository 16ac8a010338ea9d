#!/bin/bash
#SBATCH --job-name=gpt
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:8
#SBATCH --time=24:00:00
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
GPUS=$((SLURM_NNODES * SLURM_GPUS_ON_NODE))
LAUNCHER="torchrun --nnodes $SLURM_NNODES --nproc_per_node $SLURM_GPUS_ON_NODE --rdzv_backend c10d --rdzv_endpoint $MASTER_ADDR:6000"
CMD="pretrain_gpt.py --num-layers 48 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 \
  --max-position-embeddings 2048 --vocab-size 50304 --bf16 --tensor-model-parallel-size 4 \
  --pipeline-model-parallel-size 4 --micro-batch-size 1 --global-batch-size $((GPUS * 8))"
echo $CMD
srun --jobid $SLURM_JOBID bash -c "$LAUNCHER --node_rank \$SLURM_PROCID $CMD" 2>&1 | tee main_log.txt
