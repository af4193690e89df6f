# Source: https://github.com/RubricLab/inference/blob/0f97f235c7fe564252ff9f9a35dfc7a2fa43c507/Dockerfile
ARG CUDA_VERSION=12.6.1
FROM nvidia/cuda:${CUDA_VERSION}-cudnn-devel-ubuntu22.04

ENV HF_TOKEN=""
ENV SERVER_API_KEY=""
ENV PYTHONPATH="/:/workspace"
ENV CUDA_HOME="/usr/local/cuda-12"
ENV LD_LIBRARY_PATH="/usr/local/cuda-12/lib64:$LD_LIBRARY_PATH"

RUN uv pip install "sglang[all]>=0.4.9.post1"
RUN cd auth && bun i -p && cd ..

EXPOSE 3000

CMD python -m sglang.launch_server \
    --model-path Qwen/Qwen3-30B-A3B \
    --host 0.0.0.0 \
    --port 8000 \
    --reasoning-parser qwen3 \
    # --json-model-override-args '{"rope_scaling":{"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":32768}}'
    --grammar-backend llguidance & \
    bun auth/index.ts
