"""Environment variables that NCCL reads, and their values.

Names: `NCCL_PARAM(...)`, `ncclGetEnv(...)` and `DEFINE_NCCL_PARAM(...)` in NCCL 2.24.3 to 2.30.7
(all of them; `LAST_READ_BY` lists those that the newest lacks). Kinds: their use there, and
NVIDIA's list of environment variables.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

NEWEST = "2.30.7"
"""Newest NCCL version whose source was read."""

Kind = Literal["switch", "number", "level", "list", "words", "text"]


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable.

    Attributes:
        name: With the prefix `NCCL_`.
        kind: `switch` (0 or 1), `number`, `level` (a distance such as PXB), `list` (`NCCL_ALGO`,
            `NCCL_PROTO`), `words` (some of `words`), `text` (anything).
        least: Smallest number that NCCL does not replace.
        most: Largest number that NCCL does not replace.
        step: The number must be a multiple of this.
        words: In the spelling of NCCL's documentation.
        joined_by: Separator of several words; empty if only one word is allowed.
        capitals: Whether case matters.
        example: A common value.
    """

    name: str
    kind: Kind
    least: int = 0
    most: int = 2**31 - 1
    step: int = 1
    words: tuple[str, ...] = ()
    joined_by: str = ""
    capitals: bool = False
    example: str = "1"


LEVELS = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS")
"""Distances, nearest first (`graph/topo.cc`, 2.27.5 to 2.30.7; 2.24 has no C2C and P2C)."""

OLD_LEVELS = ("LOC", "PIX", "PXB", "PHB", "SYS")
"""What the old numbers 0, 1, ... mean (`graph/paths.cc`, `levelsOldToNew`); above 4 is SYS."""

_SWITCHES = """
ALLGATHERV_ENABLE ALLOC_P2P_NET_LL_BUFFERS CHECK_POINTERS COLLNET_ENABLE COMM_BLOCKING
COMM_SHRINK_SHARE_RESOURCES COMM_SPLIT_SHARE_RESOURCES CREATE_THREAD_CONTEXT CUMEM_ENABLE
CUMEM_HOST_ENABLE DEV_API_JIT DISABLE_MEM_MANAGER DMABUF_ENABLE ELASTIC_BUFFER_REGISTER
ENABLE_VERSION_CHECK GDAKI_USE_RELIABLE_DB GDRCOPY_ENABLE GDRCOPY_FIFO_ENABLE GDRCOPY_FLUSH_ENABLE
GDRCOPY_SYNC_ENABLE GDR_FLUSH_DISABLE GIN_ENABLE GIN_EXCLUSIVE_CONTEXTS GRAPH_HELPER_DISABLE
GRAPH_MIXING_SUPPORT GRAPH_REGISTER GRAPH_STREAM_ORDERING GROUP_CUDA_STREAM IB_ADAPTIVE_ROUTING
IB_DATA_DIRECT IB_DEVICE_PCI_ORDER IB_DISABLE IB_ECE_ENABLE IB_MERGE_NICS IB_MERGE_VFS
IB_MQP_RETRY_ALL IB_OOO_RQ IB_PREPOST_RECEIVE_WORK_REQUESTS IB_QUERY_PORT_SPEED
IB_RESILIENCY_PORT_FAILOVER IB_RESILIENCY_PORT_RECOVERY IB_RETURN_ASYNC_EVENTS IB_SPLIT_DATA_ON_QPS
IB_SUBNET_AWARE_ROUTING IB_USE_INLINE IB_WARN_RAIL_LOCAL IGNORE_COLLNET_MISMATCH
IGNORE_CPU_AFFINITY IGNORE_DISABLED_P2P IGNORE_NET_MISMATCH IPC_USE_ABSTRACT_SOCKET
LAUNCH_ORDER_IMPLICIT LAUNCH_RACE_FATAL LEGACY_CUDA_REGISTER LL128_C2C LOCAL_REGISTER
MLOPART_RDMA_ENABLE MNNVL_CROSS_CLIQUE MNNVL_RAIL_PER_HOST MNNVL_SCATTER_NETS_ENABLE
MULTI_RANK_GPU_ENABLE MULTI_SEGMENT_REGISTER NET_DISABLE_INTRA NET_FORCE_FLUSH NET_GDR_C2C
NET_GDR_MLOPART NET_GDR_READ NET_OPTIONAL_RECV_COMPLETION NET_SHARED_BUFFERS NET_SHARED_COMMS
NVB_DISABLE NVB_PRECONNECT NVLINK_UTIL_CENTRIC_SCHED_ENABLE NVTX_DISABLE OOB_NET_ENABLE
P2P_DIRECT_DISABLE P2P_DISABLE P2P_EPOCH_ENABLE P2P_READ_ENABLE P2P_USE_CUDA_MEMCPY PXN_C2C
PXN_DISABLE RAS_ENABLE REPORT_CONNECT_PROGRESS RMA_DISABLE RUNTIME_CONNECT SHM_DISABLE
SHM_USE_CUDA_MEMCPY SINGLE_PROC_MEM_REG_ENABLE SYM_GIN_KERNELS_ENABLE SYM_NOWIN_ENABLE
SYM_REUSE_SYSMEM_HANDLES SYM_TMA_ENABLE TOPO_SPLIT_MLOPART UNPACK_DOUBLE_NCHANNELS WIN_ENABLE
"""

_NUMBERS = """
CHUNK_SIZE COLLNET_NODE_THRESHOLD CONNECT_ROUND_MAX_PEERS GIN_COUNTER_POOL_SIZE
GIN_ERROR_QUERY_SEC GIN_GDAKI_MAX_DEST_RD_ATOMIC GIN_GDAKI_MAX_QP_RD_ATOMIC GIN_GDAKI_NIC_HANDLER
GIN_GDAKI_QP_DEPTH GIN_NCONNECTIONS GIN_NCONTEXTS GIN_PLUGIN_REF_COUNT GIN_SIGNAL_POOL_SIZE
GRAPH_DUMP_FILE_RANK IB_AR_THRESHOLD IB_MQP_RETRY_CNT IB_MQP_RETRY_SLEEP_MSEC IB_PKEY
IB_QPS_PER_CONNECTION IB_RECEIVER_SIDE_MATCHING_SCHEME IB_RESILIENCY_PORT_FAILOVER_MAX_ATTEMPTS
IB_RESILIENCY_PORT_FAILOVER_PROBE_DELAY IB_RESILIENCY_PORT_RECOVERY_ACK_TIMEOUT
IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_INTERVAL
IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_SIZE
IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_SEQUENCE_SIZE IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_TIMEOUT
IB_RESILIENCY_PORT_RECOVERY_ATTEMPTS_MAX IB_RESILIENCY_PORT_RECOVERY_START_DELAY IB_RETRY_CNT
IB_ROCE_VERSION_NUM IB_ROUTABLE_FLID_GID_INDEX IB_SUBNET_PREFIX_LEN IB_TIMEOUT
L1_SHARED_MEMORY_CARVEOUT LSA_TEAM_SIZE MEM_SYNC_DOMAIN NCHANNELS_PER_NET_PEER NET_OVERHEAD
NET_PLUGIN_REF_COUNT NSOCKS_PERTHREAD NUM_RMA_CTX NVLSTREE_MAX_CHUNKSIZE NVLS_CHUNKSIZE
P2P_LL_THRESHOLD P2P_MAX_PEERS P2P_NET_CHUNKSIZE P2P_NVL_CHUNKSIZE P2P_PCI_CHUNKSIZE
P2P_PER_CHANNEL_NET_BW P2P_SCHEDULE_GROUP_SIZE PROGRESS_APPENDOP_FREQ PROXY_APPEND_BATCH_SIZE
RAS_TIMEOUT_FACTOR RMA_PLUGIN_REF_COUNT SET_CPU_STACK_SIZE SET_STACK_SIZE SHM_MEMCPY_MODE
SOCKET_INLINE SOCKET_MIN_TASKSIZE SOCKET_NTHREADS SOCKET_POLL_TIMEOUT_MSEC SOCKET_RETRY_CNT
SOCKET_RETRY_SLEEP_MSEC SYM_CE_THRESHOLD SYM_CTAS TOPO_DUMP_FILE_RANK UID_STAGGER_RATE
UID_STAGGER_THRESHOLD
"""

_OR_MINUS_ONE = """
GIN_IB_TC GIN_PROXY_QUEUE_SIZE GIN_TYPE IB_FIFO_TC IB_GID_INDEX IB_SL IB_TC MNNVL_CLIQUE_ID
PROXY_DUMP_SIGNAL RMA_PROXY_DUMP_SIGNAL RMA_PROXY_QUEUE_SIZE SOCKET_RCVBUF SOCKET_SNDBUF
SYM_RS_GIN_CHUNK_SIZE
"""
"""Numbers for which -1 means that NCCL chooses."""

_LONG = "MNNVL_UUID SHADOW_MEMPOOL_MAX_SIZE WIN_STRIDE WORK_ARGS_BYTES WORK_FIFO_BYTES"
"""Numbers of 64 bits."""

_TEXTS = """
COMM_ID CONF_FILE DEBUG_FILE DEBUG_TIMESTAMP_FORMAT ENV_PLUGIN GIN_PLUGIN GRAPH_DUMP_FILE
GRAPH_FILE HOSTID IBVERBS_LIB IB_ADDR_RANGE IB_HCA NET NETDEVS_POLICY NET_FORCE_MERGE
NET_MERGE_POLICY NET_PLUGIN NO_CACHE OOB_NET_IFNAME PROFILER_PLUGIN PROXY_CPUSET RAS_ADDR
RMA_PLUGIN SOCKET_IFNAME SOCKET_MAGIC SYM_KERNEL THREAD_THRESHOLDS TOPO_DUMP_FILE TOPO_FILE
TUNER_CONFIG_FILE TUNER_PLUGIN VERSION
"""
"""Free text. `NCCL_VERSION` is set by CUDA's images, `NCCL_TUNER_CONFIG_FILE` read by a plugin."""

_BYTES = 2**31 - 1
_FAMILIES = ("AF_INET", "AF_INET6")
_CHANNELS = 64  # MAXCHANNELS, include/device.h: 32 in 2.24, 64 from 2.25 on
_DEBUG_LEVELS = ("VERSION", "WARN", "INFO", "ABORT", "TRACE")
_SUBSYSTEMS = (
    *("INIT", "COLL", "P2P", "SHM", "NET", "GRAPH", "TUNING", "ENV", "ALLOC", "ALLOC_HOST"),
    *("CALL", "PROXY", "NVLS", "BOOTSTRAP", "REG", "PROFILE", "RAS", "DESTROY", "ALL"),
)

_OTHERS = (
    Variable("ALGO", "list", example="ring,tree;allreduce:tree"),
    Variable("PROTO", "list", example="LL,LL128,Simple"),
    Variable("P2P_LEVEL", "level", example="SYS"),
    Variable("NET_GDR_LEVEL", "level", example="PHB"),
    Variable(
        "NET_MERGE_LEVEL",
        "words",
        words=("LOC", "PORT", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS"),
        capitals=True,
        example="PORT",
    ),
    # NCCL replaces smaller and larger numbers and reports that only with NCCL_DEBUG=INFO
    # (graph/connect.cc:334-358, graph/tuning.cc:17-36, init.cc:2013-2045, 2.30.7).
    Variable("MIN_NCHANNELS", "number", least=1, most=_CHANNELS, example="8"),
    Variable("MAX_NCHANNELS", "number", least=1, most=_CHANNELS, example="16"),
    Variable("MIN_NRINGS", "number", least=1, most=_CHANNELS, example="8"),
    Variable("MAX_NRINGS", "number", least=1, most=_CHANNELS, example="16"),
    Variable("MIN_CTAS", "number", least=1, most=_CHANNELS, example="8"),
    Variable("MAX_CTAS", "number", least=1, most=_CHANNELS, example="16"),
    Variable("MIN_P2P_NCHANNELS", "number", least=1, most=_CHANNELS, example="2"),
    Variable("MAX_P2P_NCHANNELS", "number", least=1, most=_CHANNELS, example="16"),
    Variable("NVLS_NCHANNELS", "number", least=1, most=_CHANNELS, example="16"),
    Variable("NTHREADS", "number", least=64, most=512, step=32, example="256"),
    Variable("LL128_NTHREADS", "number", least=160, most=640, step=32, example="320"),
    Variable("BUFFSIZE", "number", least=8, most=_BYTES, example="8388608"),
    Variable("LL_BUFFSIZE", "number", least=8, most=_BYTES, example="1048576"),
    Variable("LL128_BUFFSIZE", "number", least=8, most=_BYTES, example="4194304"),
    Variable("CGA_CLUSTER_SIZE", "number", most=8, example="4"),
    # 2 means "where useful".
    Variable("NVLS_ENABLE", "number", most=2),
    Variable("MNNVL_ENABLE", "number", most=2),
    Variable("PAT_ENABLE", "number", most=2),
    Variable("CROSS_NIC", "number", most=2),
    Variable("P2P_PXN_LEVEL", "number", most=2),
    Variable("IB_PCI_RELAXED_ORDERING", "number", most=2),
    Variable("SHM_LOCALITY", "number", least=1, most=2),
    Variable("DEBUG", "words", words=_DEBUG_LEVELS, example="WARN"),
    Variable("DEBUG_SUBSYS", "words", words=_SUBSYSTEMS, joined_by=",", example="INIT,ENV"),
    Variable(
        "DEBUG_TIMESTAMP_LEVELS",
        "words",
        words=(*_DEBUG_LEVELS, "ALL"),
        joined_by=",",
        example="WARN,INFO",
    ),
    Variable("WARN_ENABLE_DEBUG_INFO", "switch"),
    Variable("SET_THREAD_NAME", "switch"),
    Variable("PARAM_DUMP_ALL", "switch"),
    Variable(
        "CTA_POLICY",
        "words",
        words=("0", "1", "2", "DEFAULT", "EFFICIENCY", "ZERO"),
        joined_by="|",
        example="EFFICIENCY",
    ),
    Variable("LAUNCH_MODE", "words", words=("PARALLEL", "GROUP"), example="PARALLEL"),
    Variable("SOCKET_FAMILY", "words", words=_FAMILIES, capitals=True, example="AF_INET"),
    Variable("IB_ADDR_FAMILY", "words", words=_FAMILIES, capitals=True, example="AF_INET"),
    Variable("CHECK_MODE", "text", example="DEFAULT"),
)

LAST_READ_BY = {
    "NCCL_CREATE_THREAD_CONTEXT": "2.30.4",
    "NCCL_GIN_COUNTER_POOL_SIZE": "2.29.7",
    "NCCL_GIN_SIGNAL_POOL_SIZE": "2.29.7",
    "NCCL_SHM_MEMCPY_MODE": "2.30.4",
    "NCCL_SHM_USE_CUDA_MEMCPY": "2.30.4",
}
"""Variables that 2.30.7 does not read, with the last version that read them."""


READ_BY_TORCH = frozenset(
    (
        "NCCL_ASYNC_ERROR_HANDLING",
        "NCCL_BLOCKING_WAIT",
        "NCCL_DESYNC_DEBUG",
        "NCCL_ENABLE_TIMING",
    )
)
"""Old names of PyTorch's own variables (`TORCH_NCCL_...`, `ProcessGroupNCCL.hpp`)."""


def _table() -> dict[str, Variable]:
    plain = (
        *(Variable(name, "switch") for name in _SWITCHES.split()),
        *(Variable(name, "number") for name in _NUMBERS.split()),
        *(Variable(name, "number", least=-1) for name in _OR_MINUS_ONE.split()),
        *(Variable(name, "number", least=-1, most=2**63 - 1) for name in _LONG.split()),
        *(Variable(name, "text") for name in _TEXTS.split()),
        *_OTHERS,
    )
    return {f"NCCL_{v.name}": replace(v, name=f"NCCL_{v.name}") for v in plain}


VARIABLES: dict[str, Variable] = _table()
"""Every variable that NCCL reads, by name."""
