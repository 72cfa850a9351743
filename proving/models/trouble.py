"""Models whose posterior is awkward: prior and data at odds, a change half-way, two modes, a ridge."""

import numpyro.distributions as dist

import epf


class SurprisingCoefficient(epf.StateSpaceModel):
    """An AR(1) under a prior that excludes, or nearly, the coefficient of the data."""

    prior_sd: float

    def prior(self):
        return {"coefficient": dist.Normal(0.0, self.prior_sd)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(p.coefficient * x, 1.0)

    def observation(self, p, x, u):
        return dist.Normal(x, 0.5)


class SurprisingScales(epf.StateSpaceModel):
    """A random walk whose shocks and noise are far larger than the prior expects."""

    prior_sd: float

    def prior(self):
        return {"level_sd": dist.LogNormal(0.0, self.prior_sd), "noise_sd": dist.LogNormal(0.0, self.prior_sd)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(x, p.level_sd)

    def observation(self, p, x, u):
        return dist.Normal(x, p.noise_sd)


class ChangedCoefficient(epf.StateSpaceModel):
    """An AR(1) that is fitted to data whose coefficient changes half-way."""

    def prior(self):
        return {"coefficient": dist.Normal(0.0, 0.5), "sd": dist.HalfNormal(2.0)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(p.coefficient * x, p.sd)

    def observation(self, p, x, u):
        return dist.Normal(x, 0.3)


class Square(epf.StateSpaceModel):
    """Only the square of theta is seen, so the posterior has two modes; the prior makes them unequal."""

    def prior(self):
        return {"theta": dist.Normal(0.15, 1.0), "sd": dist.HalfNormal(1.0)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(0.7 * x, p.sd)

    def observation(self, p, x, u):
        return dist.Normal(p.theta**2 + x, 0.3)


class Ridge(epf.StateSpaceModel):
    """Only the product of two gains is seen."""

    def prior(self):
        return {"a": dist.LogNormal(0.0, 0.7), "b": dist.LogNormal(0.0, 0.7)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(0.8 * x, 1.0)

    def observation(self, p, x, u):
        return dist.Normal(p.a * p.b * x, 0.5)


class Gompertz(epf.StateSpaceModel):
    """Gompertz growth of a population, in logarithms: x = r + b x, counted with a lognormal error."""

    def prior(self):
        return {
            "r": dist.Normal(0.5, 0.5),
            "b": dist.Uniform(0.0, 1.0),
            "state_sd": dist.Exponential(2.0),
            "noise_sd": dist.Exponential(2.0),
        }

    def initial(self, p):
        return dist.Normal(1.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(p.r + p.b * x, p.state_sd)

    def observation(self, p, x, u):
        return dist.LogNormal(x, p.noise_sd)
