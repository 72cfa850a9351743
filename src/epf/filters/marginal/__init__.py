"""The marginal extended parameter filter: particle filters at nodes of theta and a function through their likelihoods."""
