"""First tables: studies, launches, trials, measurements and requests."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tuner_studies",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("space_digest", sa.Text(), nullable=False),
        sa.Column("runner", sa.Text(), nullable=False),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("planner", sa.Text(), nullable=False),
        sa.Column("hot_switch", sa.Boolean(), nullable=False),
        sa.Column("budget_launches", sa.Integer(), nullable=True),
        sa.Column("budget_hours", sa.Double(), nullable=True),
        sa.Column("options", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("stopped", sa.Text(), nullable=True),
        sa.Column("stop_reason", sa.Text(), nullable=True),
        sa.Column("work_s", sa.Double(), nullable=False),
        sa.Column("sglang_version", sa.Text(), nullable=True),
        sa.Column("owner_pid", sa.Integer(), nullable=True),
        sa.Column("owner_started", sa.Double(), nullable=True),
        sa.Column("owner_host", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tuner_studies")),
        sa.UniqueConstraint("name", name=op.f("uq_tuner_studies_name")),
    )
    op.create_table(
        "tuner_launches",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("study_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("configuration", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("settings", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("mark", sa.Text(), nullable=False),
        sa.Column("log", sa.Text(), nullable=False),
        sa.Column("command", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("environment", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=True),
        sa.Column("pid_started", sa.Double(), nullable=True),
        sa.Column("port", sa.Integer(), nullable=True),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("phases", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("ready_s", sa.Double(), nullable=True),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.Column("sglang_version", sa.Text(), nullable=True),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("failure_kind", sa.Text(), nullable=True),
        sa.Column("failure_phase", sa.Text(), nullable=True),
        sa.Column("failure_fault", sa.Text(), nullable=True),
        sa.Column("failure_message", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["study_id"],
            ["tuner_studies.id"],
            name=op.f("fk_tuner_launches_study_id_tuner_studies"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tuner_launches")),
        sa.UniqueConstraint("mark", name=op.f("uq_tuner_launches_mark")),
        sa.UniqueConstraint("study_id", "number", name=op.f("uq_tuner_launches_study_id_number")),
    )
    op.create_table(
        "tuner_trials",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("study_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("configuration", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("configuration_key", sa.Text(), nullable=False),
        sa.Column("resolved", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("server_info", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("time_scale", sa.Double(), nullable=True),
        sa.Column("judged_launch_id", sa.Integer(), nullable=True),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("finished", sa.Double(), nullable=True),
        sa.Column("failure_kind", sa.Text(), nullable=True),
        sa.Column("failure_phase", sa.Text(), nullable=True),
        sa.Column("failure_fault", sa.Text(), nullable=True),
        sa.Column("failure_message", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["judged_launch_id"],
            ["tuner_launches.id"],
            name=op.f("fk_tuner_trials_judged_launch_id_tuner_launches"),
            ondelete="SET NULL",
        ),
        sa.ForeignKeyConstraint(
            ["study_id"],
            ["tuner_studies.id"],
            name=op.f("fk_tuner_trials_study_id_tuner_studies"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tuner_trials")),
        sa.UniqueConstraint("study_id", "number", name=op.f("uq_tuner_trials_study_id_number")),
    )
    op.create_index(
        op.f("ix_tuner_trials_configuration_key"),
        "tuner_trials",
        ["configuration_key"],
        unique=False,
    )

    op.create_table(
        "tuner_launch_trials",
        sa.Column("launch_id", sa.Integer(), nullable=False),
        sa.Column("trial_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["launch_id"],
            ["tuner_launches.id"],
            name=op.f("fk_tuner_launch_trials_launch_id_tuner_launches"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["trial_id"],
            ["tuner_trials.id"],
            name=op.f("fk_tuner_launch_trials_trial_id_tuner_trials"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("launch_id", "trial_id", name=op.f("pk_tuner_launch_trials")),
    )
    op.create_index(
        op.f("ix_tuner_launch_trials_trial_id"), "tuner_launch_trials", ["trial_id"], unique=False
    )

    op.create_table(
        "tuner_measurements",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("trial_id", sa.Integer(), nullable=False),
        sa.Column("launch_id", sa.Integer(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("point", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("window_s", sa.Double(), nullable=True),
        sa.Column("requests", sa.Integer(), nullable=False),
        sa.Column("failed_requests", sa.Integer(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tok_s", sa.Double(), nullable=True),
        sa.Column("accept_length", sa.Double(), nullable=True),
        sa.Column("ttft_p50_ms", sa.Double(), nullable=True),
        sa.Column("ttft_p95_ms", sa.Double(), nullable=True),
        sa.Column("tpot_p50_ms", sa.Double(), nullable=True),
        sa.Column("tpot_p95_ms", sa.Double(), nullable=True),
        sa.Column("e2e_p50_ms", sa.Double(), nullable=True),
        sa.Column("e2e_p95_ms", sa.Double(), nullable=True),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cached_tokens", sa.BigInteger(), nullable=False),
        sa.Column("histogram", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("workload_fingerprint", sa.Text(), nullable=False),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("invalid", sa.JSON(none_as_null=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["launch_id"],
            ["tuner_launches.id"],
            name=op.f("fk_tuner_measurements_launch_id_tuner_launches"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["trial_id"],
            ["tuner_trials.id"],
            name=op.f("fk_tuner_measurements_trial_id_tuner_trials"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tuner_measurements")),
    )
    op.create_index(
        op.f("ix_tuner_measurements_launch_id"), "tuner_measurements", ["launch_id"], unique=False
    )
    op.create_index(
        op.f("ix_tuner_measurements_trial_id_launch_id"),
        "tuner_measurements",
        ["trial_id", "launch_id"],
        unique=False,
    )

    op.create_table(
        "tuner_requests",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("measurement_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("prompt", sa.Text(), nullable=False),
        sa.Column("sent_s", sa.Double(), nullable=True),
        sa.Column("ttft_s", sa.Double(), nullable=True),
        sa.Column("e2e_s", sa.Double(), nullable=True),
        sa.Column("prompt_tokens", sa.Integer(), nullable=False),
        sa.Column("completion_tokens", sa.Integer(), nullable=False),
        sa.Column("cached_tokens", sa.Integer(), nullable=False),
        sa.Column("verify_calls", sa.Integer(), nullable=False),
        sa.Column("correct_drafts", sa.Integer(), nullable=False),
        sa.Column("histogram", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("finish_reason", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["measurement_id"],
            ["tuner_measurements.id"],
            name=op.f("fk_tuner_requests_measurement_id_tuner_measurements"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tuner_requests")),
    )
    op.create_index(
        op.f("ix_tuner_requests_measurement_id"), "tuner_requests", ["measurement_id"], unique=False
    )


def downgrade() -> None:
    for table in (
        "tuner_requests",
        "tuner_measurements",
        "tuner_launch_trials",
        "tuner_trials",
        "tuner_launches",
        "tuner_studies",
    ):
        op.drop_table(table)
