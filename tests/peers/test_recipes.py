"""The recipes for PyTorch and Stable-Baselines3 in docs/recipes.md, run."""

import inspect
import re
from pathlib import Path

import pytest

import conqur

torch = pytest.importorskip("torch")
pytest.importorskip("stable_baselines3")

RECIPES = (Path(__file__).parents[2] / "docs/recipes.md").read_text()


def section(heading):
    return RECIPES.split(f"## {heading}\n")[1].split("\n## ")[0]


def run(heading):
    (block,) = re.findall(r"```python\n(.*?)```", section(heading), re.DOTALL)
    names = {}
    exec(compile(block, "docs/recipes.md", "exec"), names)
    return names


class Table(torch.nn.Module):
    """Q-values by state."""

    def __init__(self, q_values):
        super().__init__()
        self.q_values = torch.nn.Parameter(torch.tensor(q_values))

    def forward(self, states):
        return self.q_values[states]


def table():
    return Table([[1.0, 2.0], [0.0, 0.0], [3.0, 1.0]])


TARGET = Table([[1.0, 0.0], [2.0, 0.0], [1.0, 4.0]])
BATCH = (
    torch.tensor([0, 1, 2]),
    torch.tensor([0, 1, 0]),
    torch.tensor([1.0, 0.5, 2.6]),
    torch.tensor([1, 2, 0]),
    torch.tensor([0.0, 0.0, 1.0]),
)
# Labels 1 + 0.99·2, 0.5 + 0.99·4 and 2.6 against 1, 0 and 3; the choices are 0, 1 and, terminal, 0.
ERROR = ((1.98 - 0.5) + (4.46 - 0.5) + 0.4**2 / 2) / 3
PENALTY = (0 + 2) / 2


@pytest.mark.parametrize("weight", [0.0, 0.5, 2.0])
def test_the_loss_in_torch_is_that_computed_by_hand(weight):
    network = table()
    loss = run("PyTorch")["loss"](network, TARGET, *BATCH, penalty_weight=weight)
    assert loss.item() == pytest.approx(ERROR + weight * PENALTY, rel=1e-6)
    loss.backward()
    gradient = [[-1 / 3, 0], [0, -1 / 3], [0.4 / 3 + weight / 2, -weight / 2]]
    torch.testing.assert_close(network.q_values.grad, torch.tensor(gradient))
    assert TARGET.q_values.grad is None


def test_some_updates_in_torch_bring_the_choices_about():
    loss = run("PyTorch")["loss"]

    def penalty_after(weight):
        network = table()
        optimizer = torch.optim.Adam(network.parameters(), lr=0.1)
        for _ in range(20):
            optimizer.zero_grad()
            loss(network, TARGET, *BATCH, penalty_weight=weight).backward()
            optimizer.step()
        return conqur.penalty(network(BATCH[3][:2]), torch.tensor([0, 1])).mean().item()

    assert penalty_after(0.0) > 0.4
    assert penalty_after(0.5) < 0.1


def test_the_recipe_for_stable_baselines3_trains_and_saves(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)  # networks of this size only wait for more
    model = run("Stable-Baselines3")["model"]
    assert model._n_updates == 100
    assert (tmp_path / "cartpole.zip").is_file()


def test_the_options_for_stable_baselines3_have_the_defaults_that_are_told():
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", section("Stable-Baselines3"), re.MULTILINE)
    told = {name: eval(value.strip("`").replace(",", "")) for name, value in rows}
    from conqur.sb3 import ConsistentDQN

    parameters = inspect.signature(ConsistentDQN).parameters.values()
    assert told == {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
