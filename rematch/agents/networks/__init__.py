"""Networks that policies and learners compute with."""
