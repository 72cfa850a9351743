"""Autoregressions of one and several series, with inputs, noise and lags."""

import jax.numpy as jnp
import numpyro.distributions as dist

import epf


class NoisyAR(epf.StateSpaceModel):
    """x - mean is an AR(1), seen with noise; all four numbers unknown."""

    def prior(self):
        return {
            "mean": dist.Normal(0.0, 2.0),
            "coefficient": dist.Beta(5.0, 2.0),
            "state_sd": dist.HalfNormal(1.0),
            "noise_sd": dist.HalfNormal(1.0),
        }

    def initial(self, p):
        return dist.Normal(p.mean, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(p.mean + p.coefficient * (x - p.mean), p.state_sd)

    def observation(self, p, x, u):
        return dist.Normal(x, p.noise_sd)


class NoisyARUniform(NoisyAR):
    """The same under uniform priors."""

    def prior(self):
        return {
            "mean": dist.Uniform(-5.0, 5.0),
            "coefficient": dist.Uniform(-1.0, 1.0),
            "state_sd": dist.Uniform(0.0, 3.0),
            "noise_sd": dist.Uniform(0.0, 3.0),
        }


class ARWithIntercept(epf.StateSpaceModel):
    """x = intercept + coefficient x + N(0, 1) about a level of 30: the two parameters are almost collinear."""

    def prior(self):
        return {"intercept": dist.Normal(0.0, 10.0), "coefficient": dist.Normal(0.5, 0.5)}

    def initial(self, p):
        return dist.Normal(30.0, 3.0)

    def transition(self, p, x, u):
        return dist.Normal(p.intercept + p.coefficient * x, 1.0)

    def observation(self, p, x, u):
        return dist.Normal(x, 0.5)


class AR2(epf.StateSpaceModel):
    """Two lags under one uniform vector prior."""

    def prior(self):
        return {"a": dist.Uniform(-1.0, 1.0).expand([2]).to_event(1), "sd": dist.HalfNormal(2.0)}

    def initial(self, p):
        return dist.Normal(jnp.zeros(2), 1.0).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(p.a[0] * x[0] + p.a[1] * x[1], p.sd)

    def observation(self, p, x, u):
        return dist.Normal(x[0], 0.5)

    def advance(self, x, new):
        return jnp.stack([new, x[0]])


class ARMA(epf.StateSpaceModel):
    """ARMA(1, 1): w is an AR(1), and y = w_t + ma w_t-1, with a little noise."""

    def prior(self):
        return {"ar": dist.Uniform(-1.0, 1.0), "ma": dist.Normal(0.0, 0.5), "sd": dist.LogNormal(0.0, 0.5)}

    def initial(self, p):
        return dist.Normal(jnp.zeros(2), 1.0).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(p.ar * x[0], p.sd)

    def observation(self, p, x, u):
        return dist.Normal(x[0] + p.ma * x[1], 0.1)

    def advance(self, x, new):
        return jnp.stack([new, x[0]])


class VectorAR(epf.StateSpaceModel):
    """Two series, a matrix of coefficients, two scales of shocks and one of noise: seven parameters."""

    def prior(self):
        return {
            "A": dist.Normal(0.0, 0.5).expand([2, 2]).to_event(2),
            "sd": dist.HalfNormal(1.0).expand([2]).to_event(1),
            "noise_sd": dist.HalfNormal(0.5),
        }

    def initial(self, p):
        return dist.Normal(jnp.zeros(2), 1.0).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(p.A @ x, p.sd).to_event(1)

    def observation(self, p, x, u):
        return dist.Normal(x, p.noise_sd).to_event(1)


class VectorAR3(epf.StateSpaceModel):
    """Three series: a matrix of nine coefficients and one scale."""

    def prior(self):
        return {"A": dist.Normal(0.0, 0.4).expand([3, 3]).to_event(2), "sd": dist.LogNormal(0.0, 0.5)}

    def initial(self, p):
        return dist.Normal(jnp.zeros(3), 1.0).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(p.A @ x, p.sd).to_event(1)

    def observation(self, p, x, u):
        return dist.Normal(x, 0.3).to_event(1)


class RegressionWithARErrors(epf.StateSpaceModel):
    """y = slopes . inputs + an AR(1) error + a little noise."""

    def prior(self):
        return {
            "slopes": dist.Normal(0.0, 3.0).expand([2]).to_event(1),
            "coefficient": dist.Beta(4.0, 2.0),
            "sd": dist.HalfNormal(1.0),
        }

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(p.coefficient * x, p.sd)

    def observation(self, p, x, u):
        return dist.Normal(p.slopes[0] * u[0] + p.slopes[1] * u[1] + x, 0.2)


class Oscillator(epf.StateSpaceModel):
    """A damped rotation in the plane, one coordinate seen: frequency, damping and both scales unknown."""

    def prior(self):
        return {
            "frequency": dist.Uniform(0.05, 1.5),
            "damping": dist.Beta(20.0, 2.0),
            "state_sd": dist.HalfNormal(1.0),
            "noise_sd": dist.HalfNormal(1.0),
        }

    def initial(self, p):
        return dist.Normal(jnp.zeros(2), 2.0).to_event(1)

    def transition(self, p, x, u):
        c, s = p.damping * jnp.cos(p.frequency), p.damping * jnp.sin(p.frequency)
        return dist.Normal(jnp.stack([c * x[0] - s * x[1], s * x[0] + c * x[1]]), p.state_sd).to_event(1)

    def observation(self, p, x, u):
        return dist.Normal(x[0], p.noise_sd)


class LongAR(epf.StateSpaceModel):
    """For long series: coefficient and noise."""

    def prior(self):
        return {"coefficient": dist.Normal(0.0, 1.0), "noise_sd": dist.HalfNormal(2.0)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(p.coefficient * x, 1.0)

    def observation(self, p, x, u):
        return dist.Normal(x, p.noise_sd)


class TwoSensors(epf.StateSpaceModel):
    """An AR(1) seen by two sensors of unknown precision, which fail together or alone."""

    def prior(self):
        return {"coefficient": dist.Uniform(-1.0, 1.0), "noise_sd": dist.LogNormal(-0.5, 0.7).expand([2]).to_event(1)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(p.coefficient * x, 0.7)

    def observation(self, p, x, u):
        return dist.Normal(jnp.stack([x, x]), p.noise_sd).to_event(1)


class FreeAR(epf.StateSpaceModel):
    """An AR(1) whose coefficient may exceed one."""

    def prior(self):
        return {"coefficient": dist.Normal(0.5, 0.5), "sd": dist.HalfNormal(2.0)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(p.coefficient * x, p.sd)

    def observation(self, p, x, u):
        return dist.Normal(x, 1.0)


class Sunspots(epf.StateSpaceModel):
    """Square roots of sunspot numbers: an AR(2) about a mean, with noise."""

    def prior(self):
        return {
            "mean": dist.Normal(6.0, 3.0),
            "a": dist.Normal(0.0, 1.0).expand([2]).to_event(1),
            "sd": dist.HalfNormal(2.0),
            "noise_sd": dist.HalfNormal(1.0),
        }

    def initial(self, p):
        return dist.Normal(jnp.zeros(2), 4.0).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(p.a[0] * x[0] + p.a[1] * x[1], p.sd)

    def observation(self, p, x, u):
        return dist.Normal(p.mean + x[0], p.noise_sd)

    def advance(self, x, new):
        return jnp.stack([new, x[0]])
