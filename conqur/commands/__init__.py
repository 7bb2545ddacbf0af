"""The commands of the command line, one module each."""

from typing import Any

from conqur.commands.demo import Demo
from conqur.commands.diagnose import Diagnose
from conqur.commands.evaluate import Evaluate
from conqur.commands.network_files import Export, Import, Inspect
from conqur.commands.play import Play
from conqur.commands.report import Report
from conqur.commands.suite import Suite
from conqur.commands.train import Train
from conqur.commands.tune import Tune

COMMANDS: dict[str, Any] = {
    "train": Train,
    "tune": Tune,
    "diagnose": Diagnose,
    "evaluate": Evaluate,
    "play": Play,
    "report": Report,
    "suite": Suite,
    "inspect": Inspect,
    "import": Import,
    "export": Export,
    "demo": Demo,
}
