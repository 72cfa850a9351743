"""A stream on disk: it goes on bit for bit (every filter's: `filters/test_conformance`), and a file that is not what it
should be is refused in one sentence."""

import functools
import json
import os
import random
import resource
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import safetensors

import epf
from epf.errors import CheckpointError, EPFError, EPFWarning
from epf.filters._base import Method
from epf.run._replay_buffer import ReplayBuffer
from epf.storage import _checkpoint as checkpoint
from epf.storage._fingerprint import describe, model_traces, rebuild
from forged import mutate_meaning, resealed
from methods import FILTERS, interrupted
from models import AR

pytestmark = pytest.mark.usefixtures("quick_compilation")


@functools.cache
def series():
    y = epf.simulate(epf.zoo.Sin(), {"theta": 0.7}, steps=14, seed=3)[1]
    y[4] = np.nan
    return y


class Driven(epf.zoo.LocalLevel):
    """A level that is seen twice, once beside an input."""

    def observation(self, p, x, u):
        return dist.Normal(jnp.stack([x + u[0], x]), 1.0).to_event(1)


def test_inputs_vectors_and_levels_are_kept(tmp_path):
    inputs = np.sin(np.arange(8.0))[:, None]
    path, model = tmp_path / "run.epf", Driven()
    _, y = epf.simulate(model, {"level_variance": 0.5, "noise_variance": 0.5}, steps=8, seed=1, inputs=inputs)
    begun = epf.Stream(model, epf.SIR(20, proposal=epf.proposals.Bootstrap()), quantile_levels=(0.1, 0.9))
    begun.save(path)  # before the first observation
    stream = epf.Stream.load(path, model)
    assert stream.quantile_levels == begun.quantile_levels == (0.1, 0.9)
    interrupted(stream, y, path, model, inputs)
    stream = epf.Stream.load(path, model)
    with pytest.raises(epf.errors.DataError, match="0 inputs at t = 8, but 1 before"):
        stream.update(y[0])


def test_methods_are_made_again_from_their_settings():
    own = [
        epf.EPF(
            500, approximation=epf.Taylor(7, {"theta": 0.1}), sampler=epf.samplers.Slice(2), discount=0.99, refresh=3
        ),
        epf.LiuWest(10, proposal=epf.proposals.Defensive(0.2), resampling=epf.resampling.Residual(), rho=0.8),
        epf.MarginalEPF(50, nodes=12, exact=False),
        epf.EPF(20, approximation=epf.Chebyshev(box={"theta": (-1.0, 1.0)})),
        epf.PMMH(10**6, particles=6400),
        epf.ParticleGibbs(ahead=2, proposal=epf.proposals.Bootstrap()),
        epf.SMC2(200, particles=50),
    ]
    for method in [*FILTERS.values(), *own]:
        assert eqx.tree_equal(rebuild(json.loads(json.dumps(describe(method))), 10_000, (Method,)), method)


def test_stored_observations_come_back():
    ys = np.arange(2500.0, dtype=np.float32)
    buffer = ReplayBuffer(ys[:1000], ys[:1000, None])
    buffer.append(ys[1000:], ys[1000:, None])
    np.testing.assert_array_equal(buffer.window(2494, 8).ys, [*ys[2494:], 0.0, 0.0])
    np.testing.assert_array_equal(buffer.arrays()[1], ys[:, None])


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A stream of six observations, its file and its bytes."""
    path = tmp_path_factory.mktemp("saved") / "run.epf"
    stream = epf.Stream(epf.zoo.Sin(), epf.SIR(20, islands=1), seed=5)
    for y in series()[:3]:
        stream.update(y)
    stream.save(path)
    return stream, path, path.read_bytes()


def refused(path, model=None, method=None, *words):
    with pytest.raises(CheckpointError) as caught:
        epf.Stream.load(path, model or epf.zoo.Sin(), method)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    assert len(message) < 450
    for word in words:
        assert word in message, message


def test_the_file_is_what_others_call_safetensors(saved):
    stream, path, _ = saved
    with safetensors.safe_open(path, framework="np") as file:
        header = json.loads(file.metadata()["epf"])
        found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  no mapping
    np.testing.assert_array_equal(found["state.x"], stream.posterior.x)
    assert (header["t"], header["seed"], header["schema"], header["facts"]["position"]) == (3, 5, 5, 3)
    assert header["method"]["class"] == "SIR"
    assert header["versions"]["jax"] == jax.__version__


def test_another_model_or_method_is_refused(saved):
    _, path, _ = saved

    class Sin(epf.zoo.Sin):
        def transition(self, p, x, u):
            return dist.Normal(jnp.cos(p.theta * x), 1.0)

    class Tailed(epf.zoo.Sin):
        def observation(self, p, x, u):
            return dist.Laplace(x, 0.1)

    Tailed.__name__ = "Sin"
    refused(path, Sin(), None, "Sin with other fields, priors or laws")
    refused(path, Tailed(), None, "Sin with other fields, priors or laws")
    refused(path, epf.zoo.Sin(sigma=1.5), None, "other fields")
    refused(path, epf.zoo.Sin(theta=dist.Normal(0.0, 0.3)), None, "other fields")
    refused(path, AR(), None, "Sin, not AR")
    refused(path, None, epf.SIR(21), "SIR with other settings")
    refused(path, None, epf.LiuWest(20), "SIR, not LiuWest")
    assert epf.Stream.load(path, epf.zoo.Sin(), epf.SIR(20, islands=1)).num_observations == 3


def test_a_method_with_parts_of_the_users_own_is_asked_for(tmp_path):
    def law(p, x, y, u):
        return dist.Normal(y, 1.0)

    method, path = epf.SIR(10, proposal=epf.proposals.Guided(law)), tmp_path / "run.epf"
    epf.Stream(epf.zoo.Sin(), method).save(path)
    refused(path, None, None, "give it, as in load(path, model, method)")
    assert epf.Stream.load(path, epf.zoo.Sin(), method).num_observations == 0


def test_what_is_no_file_or_of_another_kind_is_refused(saved, tmp_path):
    _, _, content = saved
    refused(tmp_path / "none.epf", None, None, "There is no file")
    refused(tmp_path, None, None, "is not a file")
    (tmp_path / "empty.epf").write_bytes(b"")
    refused(tmp_path / "empty.epf", None, None, "first bytes")
    (tmp_path / "cut.epf").write_bytes(content[:-5])
    refused(tmp_path / "cut.epf", None, None, "cannot be used")
    with pytest.raises(CheckpointError, match="cannot be written"):
        epf.Stream(epf.zoo.Sin(), epf.SIR(10)).save(tmp_path / "no" / "run.epf")


def test_forged_headers_are_refused(saved, tmp_path):
    _, _, content = saved
    path = tmp_path / "forged.epf"

    def forged(change, *words):
        path.write_bytes(resealed(content, lambda h, top, data: change(h, top) or data))
        refused(path, None, None, *words)

    forged(lambda h, top: h.update(schema=1), "schema '1'", "reads schema 5", "run the series again")
    forged(lambda h, top: h.update(kind="result"), "holds a result")
    forged(lambda h, top: h.update(t=-1), "malformed header")
    forged(lambda h, top: h.update(t=10**30), "malformed header")
    forged(lambda h, top: h.update(inputs=10**12), "malformed header")
    forged(lambda h, top: h.update(inputs=4), "other fields, priors or laws")
    forged(lambda h, top: h.update(t=0), "unexpected array")
    forged(lambda h, top: h["facts"].update(position=-1), "position")
    forged(lambda h, top: h["facts"].update(collapsed=[4, 1]), "counts")
    forged(lambda h, top: h["facts"].update(observed=[1, [1], [], []]), "counts")
    forged(lambda h, top: h["facts"].update(notes={"rows": 1}), "counts")
    forged(lambda h, top: h["facts"].update(log_evidence="much"), "log_evidence")
    forged(lambda h, top: h.update(precision="float64"), "jax_enable_x64")
    forged(lambda h, top: h["method"].update({"class": "os.system"}), "malformed header")

    def other_class(h, top, data):
        h["method"]["class"] = "os.system"
        return data

    path.write_bytes(resealed(content, other_class, sign=True))
    refused(path, None, None, "cannot be made again")
    refused(path, None, epf.SIR(20, islands=1), "os.system, not SIR")
    for huge in (
        epf.SIR(2**31 - 1),
        epf.EPF(20, approximation=epf.Chebyshev(order=10**6)),
        epf.EPF(20, sampler=epf.samplers.InverseCDF(10**9 + 1)),
        epf.MarginalEPF(20, nodes=10**9),
        epf.PMMH(20, particles=10**9),
        epf.SMC2(10**9),
    ):  # made from a file alone they would cost memory or time without end

        def swapped(h, top, data, huge=huge):
            h["method"] = describe(huge)
            return data

        path.write_bytes(resealed(content, swapped, sign=True))
        refused(path, None, None, "cannot be made again")
    numbers, before = len(content) // 4, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for large in (  # within the limits that the size of the file allows
        epf.MarginalEPF(numbers // 2, nodes=numbers),
        epf.EPF(20, approximation=epf.Chebyshev(order=32)),
        epf.ResampleMove(numbers, capacity=numbers),
    ):

        def fitting(h, top, data, large=large):
            h["method"] = describe(large)
            return data

        path.write_bytes(resealed(content, fitting, sign=True))
        refused(path, None, None, "cannot be used")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # kilobytes
    forged(lambda h, top: top["state.x"].update(shape=[10**18]), "does not fit the file")
    forged(lambda h, top: top["state.x"].update(shape=[2, 10]), "float32[2, 10] in it, where float32[20] belongs")
    forged(lambda h, top: top["state.x"].update(dtype="I32"), "int32[20] in it")
    forged(lambda h, top: top["state.x"].update(dtype="O"), "unknown data type")
    forged(lambda h, top: top["state.x"].update(data_offsets=[0, 80]), "overlap")
    forged(lambda h, top: top["state.x"].update(shape=[[]] * 3), "malformed shape")
    deep = b'{"a":' * 100_000
    path.write_bytes(len(deep).to_bytes(8, "little") + deep)
    refused(path, None, None, "header cannot be read")


@pytest.mark.parametrize("cases", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_mutated_files_are_refused_or_right(cases, saved, tmp_path, monkeypatch):
    """Bytes changed, cut, doubled and swapped; half of them with their checksum set right afterwards."""
    stream, _, content = saved
    path, random_ = tmp_path / "mutated.epf", random.Random(1)
    # The model and the method in hand are the same in all cases: what they look like is worked out once.
    known, bound = checkpoint.versions(), checkpoint.bind(stream.method, stream.model, 0)
    structure = checkpoint._structure(bound, {"seed": 5, "t": 3, "inputs": 0})
    traces = checkpoint.model_traces(stream.model, 0)
    monkeypatch.setattr(checkpoint, "_structure", lambda *_: structure)
    monkeypatch.setattr(checkpoint, "model_traces", lambda *_: traces)
    monkeypatch.setattr(checkpoint, "versions", lambda: known)
    monkeypatch.setattr(checkpoint, "bind", lambda *_: bound)
    length = int.from_bytes(content[:8], "little")
    accepted = 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    file = path.open("wb")
    for case in range(cases):
        mutated = bytearray(content)
        if case % 2:
            mutated = mutate_meaning(mutated, random_)
        else:
            for _ in range(random_.randint(1, 4)):
                at = random_.randrange(8 + length if random_.random() < 0.7 else len(mutated))
                match random_.randrange(5):
                    case 0:
                        mutated[at % len(mutated)] = random_.randrange(256)
                    case 1:
                        del mutated[at:]
                    case 2:
                        mutated[at:at] = mutated[at : at + random_.randrange(40)]
                    case 3:
                        del mutated[at : at + random_.randrange(1, 20)]
                    case _:
                        mutated[at % len(mutated)] ^= 1 << random_.randrange(8)
                mutated = mutated or bytearray(b"\0")
        file.seek(0)
        file.write(mutated)
        file.truncate()
        file.flush()
        try:
            loaded = epf.Stream.load(path, stream.model)
        except (EPFError, EPFWarning):  # the latter for a changed version number
            continue
        accepted += 1
        assert loaded.num_observations == 0 or loaded.posterior.x.shape == (20,)
    file.close()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before  # kilobytes
    assert grown < 50_000
    assert accepted < 0.3 * cases  # changed numbers under a right checksum, and nothing else


def test_the_last_files_are_kept_and_a_half_written_one_does_no_harm(saved, tmp_path):
    path = tmp_path / "run.epf"
    stream = epf.Stream(epf.zoo.Sin(), epf.SIR(20, islands=1), seed=5)
    for y in series()[:4]:
        stream.update(y)
        stream.save(path, keep=2)
    half = tmp_path / ".run.epf.0123456789abcdef.partial"  # what a killed process leaves
    half.write_bytes(b"half")
    times = [
        epf.Stream.load(tmp_path / name, epf.zoo.Sin()).num_observations
        for name in ("run.epf", "run.epf.1", "run.epf.2")
    ]
    assert times == [4, 3, 2]
    assert not (tmp_path / "run.epf.3").exists()
    stream.save(path)
    assert epf.Stream.load(path, epf.zoo.Sin()).num_observations == 4
    assert not half.exists()
    with pytest.raises(epf.errors.SettingError):
        stream.save(path, keep=-1)


TRACES = """
import epf
from epf.storage._fingerprint import describe, model_traces, rebuild
print([model_traces(model, 0) for model in (epf.zoo.Sin(), epf.zoo.StochasticVolatility(), epf.zoo.STAR())])
"""


def test_a_model_has_the_same_name_in_every_process():
    """Nothing in it may hang on the order of a set, which differs from process to process."""
    other = {**os.environ, "PYTHONHASHSEED": "12"}
    found = subprocess.run([sys.executable, "-c", TRACES], env=other, capture_output=True, text=True, check=True).stdout
    models = (epf.zoo.Sin(), epf.zoo.StochasticVolatility(), epf.zoo.STAR())
    assert found.strip() == str([model_traces(model, 0) for model in models])


def test_another_version_of_jax_is_mentioned(saved, tmp_path):
    _, _, content = saved
    path = tmp_path / "old.epf"
    path.write_bytes(resealed(content, lambda h, top, data: h["versions"].update(jax="0.1") or data))
    with pytest.warns(EPFWarning, match=r"jax 0\.1"):
        assert epf.Stream.load(path, epf.zoo.Sin()).num_observations == 3
