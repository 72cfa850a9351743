"""log p(y | theta) of a linear Gaussian model, by the Kalman filter with one scalar observation at a time.

x_0 ~ N(m, P),   x_t = F x_t-1 + c + N(0, Q),   y_t = H x_t + d_t + N(0, diag(r))
"""

import jax
import jax.numpy as jnp


def kalman(y, F, Q, H, r, m, P, c=0.0, d=0.0):
    """Scalars count as 1 x 1; `r` is a vector of variances; `d` may have one row per time; NaN in y is missing."""
    y = y.reshape(y.shape[0], -1)
    F, Q, H, P = (jnp.atleast_2d(jnp.asarray(M, float)) for M in (F, Q, H, P))
    states, sensors = F.shape[0], y.shape[1]
    m = jnp.broadcast_to(jnp.asarray(m, float), (states,))
    c = jnp.broadcast_to(jnp.asarray(c, float), (states,))
    r = jnp.broadcast_to(jnp.asarray(r, float), (sensors,))
    d = jnp.asarray(d, float)
    d = jnp.broadcast_to(d.reshape(-1, 1) if d.shape == (y.shape[0],) else d, y.shape)

    def step(carry, row):
        m, P, total = carry
        y, d = row
        m, P = F @ m + c, F @ P @ F.T + Q
        for i in range(sensors):
            there = ~jnp.isnan(y[i])
            h = H[i]
            gain = P @ h
            S = h @ gain + r[i]
            e = jnp.where(there, y[i], 0.0) - h @ m - d[i]
            total += jnp.where(there, -0.5 * (e**2 / S + jnp.log(2 * jnp.pi * S)), 0.0)
            m = jnp.where(there, m + gain * (e / S), m)
            P = jnp.where(there, P - jnp.outer(gain, gain) / S, P)
        return (m, 0.5 * (P + P.T), total), None

    start = (m, jnp.broadcast_to(P, (states, states)), jnp.zeros(()))
    return jax.lax.scan(step, start, (y, d))[0][2]


def kalman1(y, a, q, r, m, P, c=0.0, d=0.0):
    """The same for a state and an observation that are numbers: h = 1."""
    d = jnp.broadcast_to(jnp.asarray(d, float), y.shape)

    def step(carry, row):
        m, P, total = carry
        y, d = row
        there = ~jnp.isnan(y)
        m, P = a * m + c, a * a * P + q
        S, e = P + r, jnp.where(there, y, 0.0) - m - d
        total += jnp.where(there, -0.5 * (e**2 / S + jnp.log(2 * jnp.pi * S)), 0.0)
        return (jnp.where(there, m + P / S * e, m), jnp.where(there, P * r / S, P), total), None

    start = tuple(jnp.asarray(v, float) + 0.0 * (a + q + r) for v in (m, P, 0.0))
    return jax.lax.scan(step, start, (y, d))[0][2]


def driven_kalman(y, u, laws, m, P):
    """The same where the matrices follow the inputs: `laws(u)` gives F, c (n,), Q, H (k, n), d (k,) and r (k,)."""
    y = y.reshape(y.shape[0], -1)

    def step(carry, row):
        m, P, total = carry
        y, u = row
        F, c, Q, H, d, r = laws(u)
        m, P = F @ m + c, F @ P @ F.T + Q
        for i in range(y.shape[0]):
            there, gain = ~jnp.isnan(y[i]), P @ H[i]
            S = H[i] @ gain + r[i]
            e = jnp.where(there, y[i], 0.0) - H[i] @ m - d[i]
            total += jnp.where(there, -0.5 * (e**2 / S + jnp.log(2 * jnp.pi * S)), 0.0)
            m = jnp.where(there, m + gain * (e / S), m)
            P = jnp.where(there, P - jnp.outer(gain, gain) / S, P)
        return (m, 0.5 * (P + P.T), total), None

    start = (jnp.asarray(m, float), jnp.asarray(P, float), jnp.zeros(()))
    return jax.lax.scan(step, start, (y, u))[0][2]
