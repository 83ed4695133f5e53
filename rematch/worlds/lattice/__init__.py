"""The lattice twin of pursuit: small enough to be solved exactly."""
