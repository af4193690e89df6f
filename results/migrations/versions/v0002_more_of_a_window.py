"""More of a window: tails, chunks, rates, warnings, and the client's own part."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_FIGURES = (
    "ttft_p99_ms",
    "tpot_p99_ms",
    "e2e_p99_ms",
    "chunk_p50_ms",
    "chunk_p95_ms",
    "tokens_per_chunk",
    "user_tok_s",
    "accept_rate",
    "request_s",
    "offered_request_s",
    "goodput_request_s",
    "client_cpu_share",
)


def upgrade() -> None:
    op.add_column(
        "tuner_measurements", sa.Column("warnings", sa.JSON(none_as_null=True), nullable=True)
    )
    for name in _FIGURES:
        op.add_column("tuner_measurements", sa.Column(name, sa.Double(), nullable=True))
    for name in ("proposed_drafts", "chunks"):
        op.add_column(
            "tuner_requests", sa.Column(name, sa.Integer(), nullable=False, server_default="0")
        )
    op.add_column("tuner_requests", sa.Column("late_s", sa.Double(), nullable=True))
