"""How delusional a network's learning is, or a search was."""

from conqur.diagnosis.diagnosing import Diagnosis, diagnose
from conqur.diagnosis.history import RunDiagnosis, diagnose_run
from conqur.diagnosis.learning import DiagnosisConfig
from conqur.diagnosis.reading import Run, is_tune_run, read_run

__all__ = [
    "Diagnosis",
    "DiagnosisConfig",
    "Run",
    "RunDiagnosis",
    "diagnose",
    "diagnose_run",
    "is_tune_run",
    "read_run",
]
