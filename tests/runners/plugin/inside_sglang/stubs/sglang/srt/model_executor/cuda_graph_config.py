def check_cuda_graph_backend(phase, backend):
    return (phase, backend) == ("decode", "disabled")
