# Source: https://github.com/sgl-project/sglang/blob/01d6672a39656050b71842bf7676ac6878910b43/examples/slurm/multi-node-deepseek.slurm
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8

set -euo pipefail

MODEL="${MODEL:-deepseek-ai/DeepSeek-V3}"
PORT="${PORT:-30000}"
NODES="${SLURM_NNODES:-2}"
GPUS_PER_NODE="${GPUS_PER_NODE:-8}"
HOST="${HOST:-0.0.0.0}"
HUGGINGFACE_CACHE="${HUGGINGFACE_CACHE:-$HOME/.cache/huggingface}"

NCCL_DEBUG="${NCCL_DEBUG:-INFO}"

HEAD_NODE=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)
DIST_INIT_ADDR="${HEAD_NODE}:5000"

echo "  Total GPUs:     $((NODES * GPUS_PER_NODE))"

if command -v apptainer &>/dev/null; then
    CONTAINER_LAUNCHER="apptainer exec --nv --bind ${HUGGINGFACE_CACHE}:/root/.cache/huggingface"
else
    CONTAINER_LAUNCHER=""
fi

if [[ -n "${CONTAINER_IMAGE:-}" && -n "${CONTAINER_LAUNCHER:-}" ]]; then
    RUN_PREFIX="${CONTAINER_LAUNCHER} ${CONTAINER_IMAGE}"
else
    RUN_PREFIX=""
fi

srun --ntasks="${NODES}" --nodes="${NODES}" \
    --gpus-per-task="${GPUS_PER_NODE}" \
    bash -c "
        set -euo pipefail

        echo \"Node: \$(hostname), SLURM_PROCID=${SLURM_PROCID}\"

        export NCCL_DEBUG=${NCCL_DEBUG}

        ${RUN_PREFIX} python3 -m sglang.launch_server \
            --model-path ${MODEL} \
            --tp $((GPUS_PER_NODE * NODES)) \
            --dist-init-addr ${DIST_INIT_ADDR} \
            --nnodes ${NODES} \
            --node-rank ${SLURM_PROCID} \
            --host ${HOST} \
            --port ${PORT} \
            --trust-remote-code
    "
