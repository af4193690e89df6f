"""Where the time of a window's cycles went."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "tuner_measurements", sa.Column("cycle", sa.JSON(none_as_null=True), nullable=True)
    )
