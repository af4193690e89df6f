# Source: https://github.com/sgl-project/SpecForge/issues/164
python3 -m sglang.launch_server \
  --model /data/models/Qwen/Qwen3-235B-A22B \
  --speculative-algorithm EAGLE3 \
  --speculative-draft-model-path /data/models/lmsys/Qwen3-235B-A22B-EAGLE3 \
  --speculative-num-steps 5 \
  --speculative-eagle-topk 8 \
  --speculative-num-draft-tokens 32 \
  --mem-fraction-static 0.75 \
  --tp 8 \
  --context-length 8192 \
  --enable-ep-moe \
  --host 0.0.0.0 \
  --port 30000
