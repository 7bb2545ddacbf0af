"""How delusional a network's learning is."""

from conqur.diagnosis.diagnosing import Diagnosis, Findings, clips_rewards, diagnose
from conqur.diagnosis.learning import DiagnosisConfig

__all__ = ["Diagnosis", "DiagnosisConfig", "Findings", "clips_rewards", "diagnose"]
