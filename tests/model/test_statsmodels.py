"""Models of statsmodels: the same states and the same likelihood, to 1e-6; and what is refused."""

import numpy as np
import numpyro.distributions as dist
import pytest

import epf

sm = pytest.importorskip("statsmodels.api")

NILE = epf.datasets.nile().to_numpy()
MONTHS = 10.0 * np.cumsum(np.random.default_rng(1).normal(size=60)) + 20.0 * np.sin(np.arange(60) * 2 * np.pi / 4)


def _models():
    uc, sarimax = sm.tsa.UnobservedComponents, sm.tsa.SARIMAX
    return {
        "local linear trend": (uc(NILE, "local linear trend"), [15099.0, 1469.1, 3.0]),
        "smooth trend, season, AR": (
            uc(MONTHS, "smooth trend", seasonal=4, autoregressive=1),
            [5.0, 2.0, 3.0, 4.0, 0.6],
        ),
        "ARMA with a constant": (sarimax(MONTHS, order=(1, 0, 2), trend="c"), [2.0, 0.5, 0.3, -0.2, 90.0]),
        "seasonal ARIMA": (sarimax(MONTHS, order=(1, 1, 1), seasonal_order=(1, 1, 0, 4)), [0.4, 0.3, -0.3, 90.0]),
    }


_LONG = [pytest.param(name, marks=pytest.mark.slow) for name in list(_models())[1:]]


@pytest.mark.parametrize("name", ["local linear trend", *_LONG])
def test_states_and_likelihood_agree(name, float64):
    theirs, params = _models()[name]
    results = theirs.filter(params)
    ours = epf.from_statsmodels(theirs)
    known = epf.fix(ours, dict(zip(ours.prior(), params, strict=True)))
    result = epf.fit(known, theirs.endog[:, 0] if theirs.endog.ndim == 2 else theirs.endog, epf.Kalman())
    burn = results.loglikelihood_burn
    assert float(np.sum(result.record.info.log_evidence[burn:])) == pytest.approx(results.llf, rel=1e-6, abs=1e-6)
    mean = result.record.state_mean.reshape(len(theirs.endog), -1)
    scale = np.abs(results.filtered_state).max()
    np.testing.assert_allclose(mean[burn:], results.filtered_state.T[burn:], atol=1e-6 * scale)


def test_a_start_that_does_not_exist_is_excluded():
    """x_t = 1.5 x_t-1 explodes, though the equation of a stationary variance has a solution, a negative one."""
    ours = epf.from_statsmodels(sm.tsa.SARIMAX(MONTHS, order=(2, 0, 0)))
    for first, second, stable in ((1.2, -0.3, True), (0.5, 0.6, False), (0.2, -1.1, False)):
        mean = ours.initial({"ar_L1": first, "ar_L2": second, "sigma2": 1.0}).mean
        np.testing.assert_allclose(mean, 0.0 if stable else 1e6)


def test_names_priors_and_refusals():
    model = epf.from_statsmodels(sm.tsa.UnobservedComponents(NILE, "local level"))
    assert list(model.prior()) == ["sigma2_irregular", "sigma2_level"]
    own = epf.from_statsmodels(sm.tsa.UnobservedComponents(NILE, "local level"), {"sigma2_level": dist.HalfNormal(1e4)})
    assert isinstance(own.prior()["sigma2_level"], dist.HalfNormal)
    with pytest.raises(epf.errors.SettingError, match="sigma2_level: use these names"):
        epf.from_statsmodels(sm.tsa.UnobservedComponents(NILE, "local level"), {"level": dist.HalfNormal(1.0)})
    with pytest.raises(epf.errors.ModelError, match="no sum of products"):
        epf.from_statsmodels(sm.tsa.UnobservedComponents(NILE, "rwalk", cycle=True, stochastic_cycle=True))
    with pytest.raises(epf.errors.ModelError, match="changes with time"):
        epf.from_statsmodels(sm.tsa.UnobservedComponents(NILE, "local level", exog=np.arange(100.0)))
    with pytest.raises(epf.errors.ModelError, match="give a model such as"):
        epf.from_statsmodels(3)
