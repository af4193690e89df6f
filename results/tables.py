"""Tables with the prefix `tuner_`. Optuna's tables are in the same database.

Types are portable (SQLite, PostgreSQL). States and purposes are text instead of enums, so that new
ones need no migration. A change here needs a revision in `results/migrations/versions`.
"""

from __future__ import annotations

from typing import Any, Final, cast

from sqlalchemy import (
    JSON,
    BigInteger,
    Double,
    ForeignKey,
    Index,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

PREFIX: Final = "tuner_"

# Named constraints can be dropped by later revisions in every database.
NAMING: Final = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}

# `None` is stored as SQL's NULL instead of JSON's null.
_JSON: Final = JSON(none_as_null=True)


class Base(DeclarativeBase):
    """Registry of the tuner's tables."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy's own protocol
        str: Text(),
        float: Double(),
        dict[str, Any]: _JSON,
        list[Any]: _JSON,
    }


class FailureColumns:
    """A `Failure` in columns, so that SQL can select by kind or fault."""

    failure_kind: Mapped[str | None]
    failure_phase: Mapped[str | None]
    failure_fault: Mapped[str | None]
    failure_message: Mapped[str | None]


class StudyRow(Base):
    """`results.studies.StoredStudy` and its owner (`owner_*`)."""

    __tablename__ = "tuner_studies"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    text: Mapped[str]
    digest: Mapped[str]
    space_digest: Mapped[str]
    runner: Mapped[str]
    simulated: Mapped[bool]
    seed: Mapped[int] = mapped_column(BigInteger)
    planner: Mapped[str]
    hot_switch: Mapped[bool]
    budget_launches: Mapped[int | None]
    budget_hours: Mapped[float | None]
    options: Mapped[dict[str, Any]]
    created: Mapped[float]
    stopped: Mapped[str | None]
    stop_reason: Mapped[str | None]
    work_s: Mapped[float]
    sglang_version: Mapped[str | None]
    owner_pid: Mapped[int | None]
    owner_started: Mapped[float | None]
    owner_host: Mapped[str | None]
    # Since revision 0003.
    base_dir: Mapped[str] = mapped_column(server_default="")
    forked_from: Mapped[str | None]


class LaunchRow(FailureColumns, Base):
    """`results.records.Launch`; `number` is its id within the study."""

    __tablename__ = "tuner_launches"
    __table_args__ = (UniqueConstraint("study_id", "number"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    study_id: Mapped[int] = mapped_column(ForeignKey("tuner_studies.id", ondelete="CASCADE"))
    number: Mapped[int]
    state: Mapped[str]
    configuration: Mapped[dict[str, Any]]
    settings: Mapped[list[Any]]
    mark: Mapped[str] = mapped_column(unique=True)
    log: Mapped[str]
    command: Mapped[list[Any]]
    environment: Mapped[list[Any]]
    pid: Mapped[int | None]
    pid_started: Mapped[float | None]
    port: Mapped[int | None]
    host: Mapped[str | None]
    phases: Mapped[list[Any]]
    ready_s: Mapped[float | None]
    seconds: Mapped[float | None]
    sglang_version: Mapped[str | None]
    created: Mapped[float]
    # Since revision 0003; NULL in rows that are older.
    machine: Mapped[dict[str, Any] | None] = mapped_column(_JSON)
    effective_environment: Mapped[dict[str, Any] | None] = mapped_column(_JSON)
    log_digest: Mapped[str | None]
    imported_from: Mapped[str | None]


class TrialRow(FailureColumns, Base):
    """`results.records.Trial`; its number is also Optuna's.

    `judged_launch_id` is the launch that gave the trial its state, counts against the budget, and
    has the trial's measurements.
    """

    __tablename__ = "tuner_trials"
    __table_args__ = (UniqueConstraint("study_id", "number"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    study_id: Mapped[int] = mapped_column(ForeignKey("tuner_studies.id", ondelete="CASCADE"))
    number: Mapped[int]
    purpose: Mapped[str]
    state: Mapped[str]
    configuration: Mapped[dict[str, Any]]
    configuration_key: Mapped[str] = mapped_column(index=True)
    resolved: Mapped[dict[str, Any] | None] = mapped_column(_JSON)
    server_info: Mapped[dict[str, Any] | None] = mapped_column(_JSON)
    time_scale: Mapped[float | None]
    judged_launch_id: Mapped[int | None] = mapped_column(
        ForeignKey("tuner_launches.id", ondelete="SET NULL")
    )
    created: Mapped[float]
    finished: Mapped[float | None]


class LaunchTrialRow(Base):
    """Trials of a launch in order."""

    __tablename__ = "tuner_launch_trials"

    launch_id: Mapped[int] = mapped_column(
        ForeignKey("tuner_launches.id", ondelete="CASCADE"), primary_key=True
    )
    trial_id: Mapped[int] = mapped_column(
        ForeignKey("tuner_trials.id", ondelete="CASCADE"), primary_key=True, index=True
    )
    position: Mapped[int]


class MeasurementRow(Base):
    """`results.records.Measurement`; NaN is stored as NULL."""

    __tablename__ = "tuner_measurements"
    __table_args__ = (Index(None, "trial_id", "launch_id"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    trial_id: Mapped[int] = mapped_column(ForeignKey("tuner_trials.id", ondelete="CASCADE"))
    launch_id: Mapped[int] = mapped_column(
        ForeignKey("tuner_launches.id", ondelete="CASCADE"), index=True
    )
    purpose: Mapped[str]
    point: Mapped[dict[str, Any]]
    started_at: Mapped[float]
    window_s: Mapped[float | None]
    requests: Mapped[int]
    failed_requests: Mapped[int]
    output_tokens: Mapped[int] = mapped_column(BigInteger)
    output_tok_s: Mapped[float | None]
    accept_length: Mapped[float | None]
    ttft_p50_ms: Mapped[float | None]
    ttft_p95_ms: Mapped[float | None]
    tpot_p50_ms: Mapped[float | None]
    tpot_p95_ms: Mapped[float | None]
    e2e_p50_ms: Mapped[float | None]
    e2e_p95_ms: Mapped[float | None]
    prompt_tokens: Mapped[int] = mapped_column(BigInteger)
    cached_tokens: Mapped[int] = mapped_column(BigInteger)
    histogram: Mapped[list[Any]]
    workload_fingerprint: Mapped[str]
    simulated: Mapped[bool]
    invalid: Mapped[list[Any]]
    # Since revision 0002; NULL in rows that are older.
    warnings: Mapped[list[Any] | None] = mapped_column(_JSON)
    ttft_p99_ms: Mapped[float | None]
    tpot_p99_ms: Mapped[float | None]
    e2e_p99_ms: Mapped[float | None]
    chunk_p50_ms: Mapped[float | None]
    chunk_p95_ms: Mapped[float | None]
    tokens_per_chunk: Mapped[float | None]
    user_tok_s: Mapped[float | None]
    accept_rate: Mapped[float | None]
    request_s: Mapped[float | None]
    offered_request_s: Mapped[float | None]
    goodput_request_s: Mapped[float | None]
    client_cpu_share: Mapped[float | None]
    # Since revision 0004; NULL in rows that are older.
    cycle: Mapped[dict[str, Any] | None] = mapped_column(_JSON)


class RequestRow(Base):
    """`results.records.RequestSample`, in the order of the measurement's samples."""

    __tablename__ = "tuner_requests"

    id: Mapped[int] = mapped_column(primary_key=True)
    measurement_id: Mapped[int] = mapped_column(
        ForeignKey("tuner_measurements.id", ondelete="CASCADE"), index=True
    )
    position: Mapped[int]
    prompt: Mapped[str]
    sent_s: Mapped[float | None]
    ttft_s: Mapped[float | None]
    e2e_s: Mapped[float | None]
    prompt_tokens: Mapped[int]
    completion_tokens: Mapped[int]
    cached_tokens: Mapped[int]
    verify_calls: Mapped[int]
    correct_drafts: Mapped[int]
    histogram: Mapped[list[Any]]
    finish_reason: Mapped[str]
    error: Mapped[str | None]
    # Since revision 0002; 0 in rows that are older.
    proposed_drafts: Mapped[int] = mapped_column(server_default="0")
    chunks: Mapped[int] = mapped_column(server_default="0")
    late_s: Mapped[float | None]


metadata: Final = Base.metadata

# The store uses SQLAlchemy Core: replays run hundreds of studies, and the ORM's unit of work costs
# more than the database.
studies: Final = cast("Table", StudyRow.__table__)
launches: Final = cast("Table", LaunchRow.__table__)
trials: Final = cast("Table", TrialRow.__table__)
launch_trials: Final = cast("Table", LaunchTrialRow.__table__)
measurements: Final = cast("Table", MeasurementRow.__table__)
requests: Final = cast("Table", RequestRow.__table__)
