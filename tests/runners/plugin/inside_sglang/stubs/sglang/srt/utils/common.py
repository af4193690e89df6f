def get_available_gpu_memory(device, gpu_id, distributed=False, empty_cache=True, cpu_group=None):
    return 10.0
