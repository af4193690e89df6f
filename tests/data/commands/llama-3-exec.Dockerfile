# Source: https://github.com/Orchestra-Research/AI-Research-SKILLs/blob/HEAD/12-inference-serving/sglang/references/deployment.md
FROM nvidia/cuda:12.1.0-devel-ubuntu22.04

RUN apt-get update && apt-get install -y python3.10 python3-pip git

RUN pip3 install "sglang[all]" flashinfer -i https://flashinfer.ai/whl/cu121/torch2.4/

WORKDIR /app

EXPOSE 30000

CMD ["python3", "-m", "sglang.launch_server", \
     "--model-path", "meta-llama/Meta-Llama-3-8B-Instruct", \
     "--host", "0.0.0.0", \
     "--port", "30000"]
