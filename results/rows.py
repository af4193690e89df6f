"""Convert records to database rows and back."""

from __future__ import annotations

import math
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Final, cast

from results.records import (
    CycleTimes,
    Failure,
    Launch,
    LaunchIntent,
    LaunchState,
    Machine,
    Measurement,
    ProcessIdentity,
    RequestSample,
)
from results.studies import StoredStudy
from search_spaces.configuration import Configuration, Setting
from search_spaces.workload import OperatingPoint

if TYPE_CHECKING:
    from sqlalchemy import RowMapping

    from results.records import Fault

_STUDY_FIELDS: Final = tuple(field.name for field in fields(StoredStudy))
_PLAIN: Final = tuple(
    field.name
    for field in fields(Measurement)
    if field.name not in {"point", "histogram", "invalid", "warnings", "samples", "cycle"}
)
_SAMPLE_PLAIN: Final = tuple(
    field.name for field in fields(RequestSample) if field.name != "histogram"
)
_MAY_BE_NONE: Final = frozenset(
    {"accept_length", "accept_rate", "error", "goodput_request_s", "offered_request_s"}
)


def clean_text(text: str) -> str:
    """Replace NULs and broken UTF-8 in logs, which databases refuse."""
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()


def _number(value: object) -> object:
    # SQL has no portable NaN (a percentile of no requests), so NULL is stored.
    return None if isinstance(value, float) and math.isnan(value) else value


def failure_columns(failure: Failure | None) -> dict[str, str | None]:
    """Columns of a failure."""
    if failure is None:
        return dict.fromkeys(("failure_kind", "failure_phase", "failure_fault", "failure_message"))
    return {f"failure_{key}": clean_text(value) for key, value in failure.to_dict().items()}


def failure_of(row: RowMapping) -> Failure | None:
    """Inverse of `failure_columns`."""
    if row["failure_kind"] is None:
        return None
    return Failure(
        row["failure_kind"],
        row["failure_phase"],
        cast("Fault", row["failure_fault"]),
        row["failure_message"],
    )


def study_of(row: RowMapping) -> StoredStudy:
    """Study of a row."""
    return StoredStudy(**{name: row[name] for name in _STUDY_FIELDS})


def intent_columns(intent: LaunchIntent) -> dict[str, Any]:
    """Columns of a launch that are known before its start."""
    return {
        "configuration": intent.configuration.to_dict(),
        "settings": [asdict(setting) for setting in intent.settings],
        "mark": intent.mark,
        "log": intent.log,
    }


def launch_of(row: RowMapping, trials: tuple[int, ...]) -> Launch:
    """Launch of a row and its trial numbers."""
    process = None
    if row["pid"] is not None:
        process = ProcessIdentity(
            row["pid"], row["pid_started"], row["mark"], row["port"], row["host"]
        )
    return Launch(
        id=row["number"],
        state=LaunchState(row["state"]),
        intent=LaunchIntent(
            Configuration.from_dict(row["configuration"]),
            tuple(Setting(**setting) for setting in row["settings"]),
            row["mark"],
            row["log"],
        ),
        command=tuple(row["command"]),
        environment=tuple((name, value) for name, value in row["environment"]),
        process=process,
        phases=tuple((name, seconds) for name, seconds in row["phases"]),
        ready_s=row["ready_s"],
        seconds=row["seconds"],
        failure=failure_of(row),
        trials=trials,
        sglang_version=row["sglang_version"],
        machine=row["machine"] and Machine.from_dict(row["machine"]),
        effective_environment=tuple(sorted((row["effective_environment"] or {}).items())),
        log_digest=row["log_digest"],
        imported_from=row["imported_from"],
        created=row["created"],
    )


def measurement_columns(measurement: Measurement) -> dict[str, Any]:
    """Columns of a measurement without its samples."""
    return {
        **{name: _number(getattr(measurement, name)) for name in _PLAIN},
        "workload_fingerprint": measurement.workload_fingerprint,
        "point": asdict(measurement.point),
        "histogram": list(measurement.histogram),
        "invalid": [clean_text(reason) for reason in measurement.invalid],
        "warnings": [clean_text(reason) for reason in measurement.warnings],
        "cycle": measurement.cycle and measurement.cycle.to_dict(),
    }


def point_of(row: RowMapping) -> OperatingPoint:
    """Operating point of a measurement's row."""
    return OperatingPoint(**row["point"])


def measurement_of(row: RowMapping, samples: tuple[RequestSample, ...] = ()) -> Measurement:
    """Inverse of `measurement_columns`."""
    return Measurement(
        **{name: _or_nan(name, row[name]) for name in _PLAIN},
        point=point_of(row),
        histogram=tuple(row["histogram"]),
        invalid=tuple(row["invalid"]),
        warnings=tuple(row["warnings"] or ()),
        samples=samples,
        cycle=row["cycle"] and CycleTimes.from_dict(row["cycle"]),
    )


def sample_columns(sample: RequestSample) -> dict[str, Any]:
    """Columns of a request."""
    return {
        **{name: _number(getattr(sample, name)) for name in _SAMPLE_PLAIN},
        "histogram": list(sample.histogram),
        "finish_reason": clean_text(sample.finish_reason),
        "error": None if sample.error is None else clean_text(sample.error),
    }


def sample_of(row: RowMapping) -> RequestSample:
    """Inverse of `sample_columns`."""
    return RequestSample(
        **{name: _or_nan(name, row[name]) for name in _SAMPLE_PLAIN},
        histogram=tuple(row["histogram"]),
    )


def _or_nan(name: str, value: Any) -> Any:  # noqa: ANN401 - a column of any type
    return math.nan if value is None and name not in _MAY_BE_NONE else value
