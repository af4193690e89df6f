"""Where a number comes from: machine, effective environment, log digest; and forked studies."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    json = sa.JSON(none_as_null=True)
    op.add_column(
        "tuner_studies", sa.Column("base_dir", sa.Text(), nullable=False, server_default="")
    )
    op.add_column("tuner_studies", sa.Column("forked_from", sa.Text(), nullable=True))
    op.add_column("tuner_launches", sa.Column("machine", json, nullable=True))
    op.add_column("tuner_launches", sa.Column("effective_environment", json, nullable=True))
    op.add_column("tuner_launches", sa.Column("log_digest", sa.Text(), nullable=True))
    op.add_column("tuner_launches", sa.Column("imported_from", sa.Text(), nullable=True))
