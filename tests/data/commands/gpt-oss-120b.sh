# Source: https://lmsys.org/blog/2025-08-27-gpt-oss
pip install "sglang[all]>=0.5.1.post3"
python3 -m sglang.launch_server --model-path openai/gpt-oss-120b --tp 4
