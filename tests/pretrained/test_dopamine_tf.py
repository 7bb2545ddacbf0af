import numpy as np
import pytest
from foreign_networks import (
    answers,
    broken,
    images,
    nature_layers,
    q_values,
    same_weights,
)
from tensor_bundles import bundle, scalars, write

from conqur.pretrained.dopamine_tf import DopamineTF
from conqur.pretrained.format import Content
from conqur.pretrained.tensor_bundle import is_bundle
from conqur.regressor import Architecture

FORMAT = DopamineTF()
LAYERS = nature_layers("SAME")
NAMES = ("Conv", "Conv_1", "Conv_2", "fully_connected", "fully_connected_1")


def variables(layers=LAYERS, network="Online", parts=("weights", "biases")):
    return {
        f"{network}/{name}/{part}": array
        for name, layer in zip(NAMES, layers, strict=True)
        for part, array in zip(parts, layer, strict=True)
    }


def checkpoint(parts=("weights", "biases")):
    """The variables of a run: both networks, the optimizer's, and more."""
    online = variables(parts=parts)
    slots = {
        f"{name}/RMSProp{end}": array * 0 for name, array in online.items() for end in ("", "_1")
    }
    other = variables(nature_layers("SAME", seed=9), "Target", parts)
    return online | slots | other | scalars()


@pytest.mark.parametrize("parts", [("weights", "biases"), ("kernel", "bias")])
def test_a_checkpoint(tmp_path, parts):
    prefix = write(tmp_path, "tf_ckpt-199", *bundle(checkpoint(parts)))
    for path in (prefix, *tmp_path.iterdir()):
        content = Content(path)
        assert FORMAT.recognises(content)
        network = FORMAT.read(content)
        assert same_weights(network.regressor, LAYERS)
    assert network.architecture == Architecture("nature-same", (84, 84, 4), 6, (8,))
    assert (network.format, network.preprocessing) == ("dopamine-tf", "dopamine")
    assert network.origin == {"iteration": 199}
    with pytest.raises(ValueError, match="dopamine-tf cannot be written: export"):
        FORMAT.write(content, network.regressor)


def test_q_values(tmp_path):
    network = FORMAT.read(Content(write(tmp_path, "model", *bundle(variables()))))
    assert network.origin == {}
    found = answers(network.regressor, images())
    np.testing.assert_allclose(found, q_values(LAYERS, images(), "SAME"), atol=1e-5)


SMALL = np.float32([1, 2])
HOSTILE = {
    "another network": ({"eval_net/w": SMALL}, "no network of Dopamine"),
    "a missing part": (variables() | {"Online/Conv/more": SMALL}, "or parts of them"),
    "a missing layer": (
        {"Online/Conv/weights": SMALL, "Online/Conv/biases": SMALL},
        "lacks layers",
    ),
    "quantiles": (variables() | {"Online/fully_connected_2/weights": SMALL}, "fully_connected_2"),
    "distributions": (variables(nature_layers("SAME", actions=204)), "204 outputs"),
    "other padding": (variables(nature_layers("VALID")), "has shape"),
    "integers": (
        variables() | {"Online/Conv/biases": np.zeros(32, np.int32)},
        "not of type float32",
    ),
    "not a number": (
        variables() | {"Online/Conv/biases": np.full(32, np.nan, np.float32)},
        "finite",
    ),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_files_are_one_sentence(tmp_path, kind):
    arrays, words = HOSTILE[kind]
    with pytest.raises(ValueError, match=words) as caught:
        FORMAT.read(Content(write(tmp_path, "tf_ckpt-1", *bundle(arrays))))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_names_that_cannot_be_longer_are_of_other_files(tmp_path):
    """With what TensorFlow adds to them they would be too long for the disk."""
    path = tmp_path / ("a" * 252)
    path.write_bytes(b"x")
    assert not is_bundle(path)


def test_other_files_are_not_recognised(tmp_path):
    (tmp_path / "a.index").write_bytes(b"x" * 60)
    (tmp_path / "b.index").mkdir()
    for name in ("a", "a.index", "b", "b.index", "nothing", "c.data-00000-of-00001"):
        assert not FORMAT.recognises(Content(tmp_path / name))


def test_broken_files_are_refused_or_whole(tmp_path):
    index, data = bundle(variables())
    for copy in broken(index, 250):
        try:
            network = FORMAT.read(Content(write(tmp_path, "x", copy, data)))
        except ValueError:
            continue
        assert same_weights(network.regressor, LAYERS)
