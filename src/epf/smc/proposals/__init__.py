"""Proposals: the distribution that new states are drawn from, with the importance weight."""

from epf.smc.proposals._automatic import Automatic as Automatic
from epf.smc.proposals._automatic import choose_proposal as choose_proposal
from epf.smc.proposals._base import Bootstrap as Bootstrap
from epf.smc.proposals._base import Guided as Guided
from epf.smc.proposals._base import Proposal as Proposal
from epf.smc.proposals._enumerated import Enumerated as Enumerated
from epf.smc.proposals._gaussian import Linearised as Linearised
from epf.smc.proposals._gaussian import Optimal as Optimal
from epf.smc.proposals._not_gaussian import Defensive as Defensive
from epf.smc.proposals._not_gaussian import Interpolated as Interpolated
